"""The C heap in a known state, so that figures do not depend on what ran before.

glibc fills holes that earlier work left in its heap before it asks the kernel for more, and learns from
the blocks that were freed from which size on it maps pages of their own. The same forward then touches
more or fewer pages: without this module one model peaked at 12 to 19 MiB.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MAPS = Path("/proc/self/maps")
LEARNT_BYTES = (
    32 * 2**20
)  # where glibc's learning ends (DEFAULT_MMAP_THRESHOLD_MAX): the state of a process that ran long
APART_BYTES = 256 * 2**10  # while a peak is read, blocks from this size on have pages of their own: 1.6 % lost at most
SMALLEST_PLUG = 8 * 2**10  # smaller holes are beside what a forward takes
MAX_PLUGS = 200_000  # per size; bounds the time to about a tenth of a second
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)
IS_MAPPED, IS_FOREIGN = 2, 4  # bits of a block's size word: own mapping, heap of another thread


def is_glibc() -> bool:
    """Whether memory comes from glibc's own malloc, not from one that was loaded in its place."""
    return _glibc() is not None


def give_back() -> None:
    """Frees garbage and returns the free pages that glibc holds; with other allocators only the former."""
    gc.collect()
    if (libc := _glibc()) is not None:
        libc.malloc_trim(0)


def settle() -> None:
    """Lets glibc learn all that it can, so that a large model timed first does not speed up the next one."""
    if (libc := _glibc()) is not None:
        libc.free(libc.malloc(LEARNT_BYTES - SMALLEST_PLUG))


@contextmanager
def no_holes() -> Iterator[None]:
    """A heap in which each larger block takes pages of its own; afterwards it is as `settle` leaves it."""
    libc = _glibc()
    if libc is None:
        gc.collect()
        yield
        return
    give_back()
    libc.mallopt(M_MMAP_THRESHOLD, APART_BYTES)
    libc.mallopt(M_TRIM_THRESHOLD, APART_BYTES)  # heaps of other threads give back only when a block of theirs is freed
    plugs = _plug(libc)
    try:
        yield
    finally:
        for plug in plugs:
            libc.free(plug)
        libc.mallopt(M_MMAP_THRESHOLD, LEARNT_BYTES)
        libc.mallopt(M_TRIM_THRESHOLD, 2 * LEARNT_BYTES)  # as glibc itself sets it beside the other
        give_back()


def _plug(libc: ctypes.CDLL) -> list[int]:
    """Fills the holes with blocks that are never touched, from large to small, until the heap has to grow for one."""
    plugs: list[int] = []
    size = LEARNT_BYTES
    while size >= SMALLEST_PLUG:
        for _ in range(MAX_PLUGS):
            end = libc.sbrk(0)
            block = libc.malloc(size)
            if not block:
                break
            plugs.append(block)
            flags = ctypes.c_size_t.from_address(block - ctypes.sizeof(ctypes.c_size_t)).value
            if flags & (IS_MAPPED | IS_FOREIGN) or libc.sbrk(0) != end:
                break
        size //= 2
    return plugs


def _glibc() -> ctypes.CDLL | None:
    """The C library with its functions typed, if its malloc is the one in use."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version") or not _is_from_libc(libc):
        return None
    libc.malloc.restype = libc.sbrk.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.sbrk.argtypes = [ctypes.c_ssize_t]
    return libc


def _is_from_libc(libc: ctypes.CDLL) -> bool:
    """Whether `malloc` lies in the file of the C library."""
    address = ctypes.cast(libc.malloc, ctypes.c_void_p).value or 0
    try:
        lines = MAPS.read_text(errors="replace").splitlines()
    except OSError:
        return False
    for line in lines:
        span, *_, path = line.split(maxsplit=5)
        first, last = (int(part, 16) for part in span.split("-"))
        if first <= address < last:
            return Path(path).name.startswith(("libc.so", "libc-2"))
    return False
