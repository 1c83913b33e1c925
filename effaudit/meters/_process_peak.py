"""By how much running something lifts the peak of this process's memory, or the memory of its children."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from effaudit.meters import _beside, _heap
from effaudit.record import Caution

PROC = Path("/proc/self")
SAMPLING_S = 0.001  # of the thread that watches where there is no peak to reset
CHILDREN_S = 0.01  # of the thread that watches children: listing them takes milliseconds

Run = Callable[[], object]


@dataclass(frozen=True)
class Peak:
    """Bytes above the state before, and how they were found."""

    n_bytes: int
    method: str
    cautions: tuple[Caution, ...] = ()


def process_peak(runs: list[Run]) -> Peak:
    """The largest growth of VmHWM after a reset, or of sampled RSS where the kernel has no reset.

    To be called in `_heap.no_holes`, with the runs warmed up in it.
    """
    if not _reset_peak():
        return sampled_peak(runs, lambda: psutil.Process().memory_info().rss, "resident set")
    grown = max(_growth(run) for run in runs)
    apart = "freed memory returned at once, " if _heap.is_glibc() else ""
    method = (
        f"growth of the process's peak resident set (VmHWM, reset before), {apart}resolution {resolution() // 1024} KiB"
    )
    return Peak(grown, method, _allocator_cautions())


def sampled_peak(runs: list[Run], read: Callable[[], int], what: str) -> Peak:
    """The largest growth that a thread sees which calls `read` all the while."""
    before = read()
    with _beside.highest(read, SAMPLING_S) as highest:
        for run in runs:
            run()
    text = f"{what} was sampled: a peak between two samples, or in memory kept from before, is missed"
    caution = Caution(code="sampled", text=text, hint="Linux and CUDA have exact peaks")
    return Peak(highest() - before, f"{what}, sampled each {SAMPLING_S * 1000:.0f} ms", (caution,))


def tells_shares() -> bool:
    """Whether the system tells a process's share in pages that several have (PSS: Linux, not every sandbox)."""
    try:
        return hasattr(psutil.Process().memory_full_info(), "pss")
    except (psutil.Error, OSError):
        return False


def children_bytes() -> int:
    """PSS of all child processes: each page that several share is divided among them, so that none counts twice."""
    total = 0
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it may have ended
                total += child.memory_full_info().pss
    return total


def can_reset_peak() -> bool:
    """Whether the kernel lets a process reset its own peak (Linux since 4.0, not every sandbox)."""
    return os.access(PROC / "clear_refs", os.W_OK) and (PROC / "status").exists()


def resolution() -> int:
    """Bytes by which the kernel's per-CPU page counters may lag (percpu_counter: 32 or 2n pages on each of n CPUs)."""
    n = os.cpu_count() or 1
    return max(32, 2 * n) * n * os.sysconf("SC_PAGE_SIZE")


def _growth(run: Run) -> int:
    """B by which one run lifts the process's peak."""
    _heap.give_back()
    _reset_peak()
    before = _status_bytes("VmHWM")
    run()
    return _status_bytes("VmHWM") - before


def _reset_peak() -> bool:
    try:
        (PROC / "clear_refs").write_text("5")
        return _status_bytes("VmHWM") > 0
    except (OSError, LookupError):
        return False


def _status_bytes(field: str) -> int:
    """A memory figure of /proc/self/status.

    Raises LookupError where the kernel does not show it.
    """
    for line in (PROC / "status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def _allocator_cautions() -> tuple[Caution, ...]:
    if _heap.is_glibc():
        return ()
    text = (
        "another allocator than glibc's is in use and may serve a forward from memory kept before: the peak may be low"
    )
    return (Caution(code="foreign_allocator", text=text, hint="run without LD_PRELOAD"),)
