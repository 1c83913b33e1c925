"""How much memory a forward pass needs above what was there before it.

On a CPU that is the growth of the process's own peak while one of the largest batches runs. Freed memory
that the C library keeps is given back first and the peak is reset, so neither order nor earlier models matter.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from effaudit import device
from effaudit.meters import _heap, _sampling
from effaudit.parameters import weight_bytes
from effaudit.profile_spec import AuditSpec
from effaudit.record import Caution, Findings, Measurement, unavailable
from effaudit.workload import Batch, Workload

N_LARGEST = 2  # batches that run: the largest, and one more in case that routing spared it
PROC = Path("/proc/self")
SAMPLING_S = 0.001  # of the fallback's thread


@dataclass(frozen=True)
class _Peak:
    """Bytes above the state before, and how they were found."""

    n_bytes: int
    method: str
    cautions: tuple[Caution, ...] = ()


def measure(works: Sequence[Workload], settings: AuditSpec) -> list[Findings]:
    """memory.peak, memory.weights, memory.allocated and memory.reserved of each workload."""
    with device.threads(settings.threads):
        return [Findings(measurements=tuple(_measurements(work))) for work in works]


def _measurements(work: Workload) -> Iterator[Measurement]:
    batches = _sampling.largest(work, N_LARGEST)
    for batch in batches:  # what libraries set up once is no model's own
        work.run(batch)
    told = f"{len(batches)} largest batches, after a warm-up"
    if work.device.type == "cuda":
        yield from _cuda(work, batches, told)
    else:
        peak = _mps_peak(work, batches) if work.device.type == "mps" else _process_peak(work, batches)
        if peak.n_bytes > 0:
            yield _bytes("memory.peak", peak.n_bytes, f"{peak.method}; {told}", peak.cautions)
        else:
            yield unavailable("memory.peak", "B", "lower", f"no growth seen: {peak.method}; {told}", *peak.cautions)
        reason = f"no caching allocator with peak counters on {work.device.type}"
        for name in ("memory.allocated", "memory.reserved"):
            yield unavailable(name, "B", "lower", reason)
    yield Measurement(
        name="memory.weights",
        unit="B",
        better="lower",
        source="counted",
        method="parameters and buffers, shared storage once",
        value=weight_bytes(work.model),
    )


def _cuda(work: Workload, batches: list[Batch], told: str) -> Iterator[Measurement]:
    """The allocator's peaks: growth over the state before, then the process's own totals."""
    gc.collect()
    torch.cuda.synchronize(work.device)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated(work.device)
    torch.cuda.reset_peak_memory_stats(work.device)
    for batch in batches:
        work.run(batch)
    torch.cuda.synchronize(work.device)
    allocated = torch.cuda.max_memory_allocated(work.device)
    yield _bytes("memory.peak", allocated - before, f"CUDA allocator, peak allocated above the state before; {told}")
    whole = "all that this process holds on the device, other models too"
    yield _bytes("memory.allocated", allocated, f"CUDA allocator, peak allocated; {whole}; {told}")
    reserved = torch.cuda.max_memory_reserved(work.device)
    yield _bytes("memory.reserved", reserved, f"CUDA allocator, peak reserved; {whole}; {told}")


def _bytes(name: str, value: int, method: str, cautions: tuple[Caution, ...] = ()) -> Measurement:
    return Measurement(
        name=name, unit="B", better="lower", source="measured", method=method, value=value, cautions=cautions
    )


def _run_all(work: Workload, batches: list[Batch]) -> None:
    for batch in batches:
        work.run(batch)
    device.synchronize(work.device)


def _process_peak(work: Workload, batches: list[Batch]) -> _Peak:
    """The growth of VmHWM after a reset, or of sampled RSS where the kernel has no reset."""
    with _heap.no_holes():
        if not _reset_peak():
            return _sampled_peak(work, batches, lambda: psutil.Process().memory_info().rss, "resident set")
        grown = max(_growth(work, batch) for batch in batches)
    apart = "freed memory returned at once, " if _heap.is_glibc() else ""
    method = (
        f"growth of the process's peak resident set (VmHWM, reset before), {apart}resolution {resolution() // 1024} KiB"
    )
    return _Peak(grown, method, _allocator_cautions())


def _growth(work: Workload, batch: Batch) -> int:
    """B by which one batch lifts the process's peak."""
    _heap.give_back()
    _reset_peak()
    before = _status_bytes("VmHWM")
    work.run(batch)
    return _status_bytes("VmHWM") - before


def _mps_peak(work: Workload, batches: list[Batch]) -> _Peak:
    return _sampled_peak(work, batches, torch.mps.current_allocated_memory, "torch.mps.current_allocated_memory")


def _sampled_peak(work: Workload, batches: list[Batch], read: Callable[[], int], what: str) -> _Peak:
    before = read()
    with _sampler(read) as highest:
        _run_all(work, batches)
    text = f"{what} was sampled: a peak between two samples, or in memory kept from before, is missed"
    caution = Caution(code="sampled", text=text, hint="Linux and CUDA have exact peaks")
    return _Peak(highest() - before, f"{what}, sampled each {SAMPLING_S * 1000:.0f} ms", (caution,))


@contextmanager
def _sampler(read: Callable[[], int]) -> Iterator[Callable[[], int]]:
    """Reads all the while in a thread that ends with the block; yields what gives the highest reading."""
    highest = [read()]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(SAMPLING_S):
            highest[0] = max(highest[0], read())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield lambda: max(highest[0], read())
    finally:
        done.set()
        thread.join()


def can_reset_peak() -> bool:
    """Whether the kernel lets a process reset its own peak (Linux since 4.0, not every sandbox)."""
    return os.access(PROC / "clear_refs", os.W_OK) and (PROC / "status").exists()


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


def resolution() -> int:
    """Bytes by which the kernel's per-CPU page counters may lag (percpu_counter: 32 or 2n pages on each of n CPUs)."""
    n = os.cpu_count() or 1
    return max(32, 2 * n) * n * os.sysconf("SC_PAGE_SIZE")


def _allocator_cautions() -> tuple[Caution, ...]:
    if _heap.is_glibc():
        return ()
    text = (
        "another allocator than glibc's is in use and may serve a forward from memory kept before: the peak may be low"
    )
    return (Caution(code="foreign_allocator", text=text, hint="run without LD_PRELOAD"),)
