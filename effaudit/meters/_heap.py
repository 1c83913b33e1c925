"""A C heap without reusable holes, so that a peak does not depend on what ran before.

glibc fills holes that earlier work left in its heap before it asks the kernel for more. Which request
lands in which hole then decides how many pages a forward touches: the same model peaked at 12 to 19 MiB.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

LARGEST_HEAP_BLOCK = 32 * 2**20  # above this glibc always maps pages of their own (DEFAULT_MMAP_THRESHOLD_MAX)
SMALLEST_PLUG = 16 * 2**10  # smaller holes serve no tensor worth counting
IS_MAPPED, IS_FOREIGN = 2, 4  # bits of glibc's chunk size: own mapping, arena of another thread
MAX_PLUGS = 200_000  # per size; bounds the time to about a tenth of a second


def give_back() -> None:
    """Frees garbage and returns the free pages that glibc holds; elsewhere only the former."""
    gc.collect()
    libc = _glibc()
    if libc is not None:
        libc.malloc_trim(0)


@contextmanager
def no_holes() -> Iterator[None]:
    """Fills the holes with blocks that are never touched, and takes them out afterwards."""
    libc = _glibc()
    if libc is None:
        yield
        return
    give_back()
    plugs = _plug(libc)
    libc.free(libc.malloc(LARGEST_HEAP_BLOCK - SMALLEST_PLUG))  # glibc now maps nothing smaller, whatever it did before
    try:
        yield
    finally:
        for plug in plugs:
            libc.free(plug)
        give_back()


def _plug(libc: ctypes.CDLL) -> list[int]:
    """Blocks of falling size until the heap has to grow for one: then no hole of that size is left."""
    plugs: list[int] = []
    size = LARGEST_HEAP_BLOCK // 2
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
    """The C library if it is glibc, its functions typed."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        return None
    libc.malloc.restype = libc.sbrk.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.sbrk.argtypes = [ctypes.c_ssize_t]
    return libc
