"""How much memory a forward pass needs above what was there before it.

On a CPU that is the growth of the process's own peak while one of the largest batches runs. Freed memory
that the C library keeps is given back first and the peak is reset, so neither order nor earlier models matter.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator, Sequence
from types import ModuleType

import torch

from effaudit import device
from effaudit.meters import _beside, _heap, _process_peak, _sampling
from effaudit.meters._process_peak import Run
from effaudit.parameters import weight_bytes
from effaudit.profile_spec import AuditSpec
from effaudit.record import Caution, Findings, Measurement, unavailable
from effaudit.workload import Batch, Workload

N_LARGEST = 2  # batches that run: the largest, and one more in case that routing spared it
COUNTERS = ("memory_allocated", "max_memory_allocated", "max_memory_reserved", "reset_peak_memory_stats")


def measure(works: Sequence[Workload], settings: AuditSpec) -> list[Findings]:
    """memory.peak, .weights, .allocated, .reserved and .children of each workload."""
    found = []
    with device.threads(settings.threads):
        for work in works:
            with _heap.no_holes():
                found.append(Findings(measurements=tuple(_measurements(work))))
    return found


def _measurements(work: Workload) -> Iterator[Measurement]:
    runs: list[Run] = [functools.partial(_run, work, batch) for batch in _sampling.largest(work, N_LARGEST)]
    children = _children(runs)  # this pass is the warm-up too: what libraries set up once is no model's own
    told = f"{len(runs)} largest batches, after a warm-up; what a model keeps from pass to pass is not in it"
    api = allocator_of(work.device)
    if api is not None:
        yield from _by_allocator(work, runs, api, told)
    else:
        yield _without_allocator(work, runs, told)
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
    yield children


def allocator_of(on: torch.device) -> ModuleType | None:
    """The module with the peak counters of a device's caching allocator (`torch.cuda`, `torch.xpu`), if it has one."""
    if on.type in ("cpu", "mps", "meta"):
        return None
    api: ModuleType = torch.get_device_module(on)
    return api if all(hasattr(api, name) for name in COUNTERS) else None


def _run(work: Workload, batch: Batch) -> None:
    work.run(batch)
    device.synchronize(work.device)


def _by_allocator(work: Workload, runs: list[Run], api: ModuleType, told: str) -> Iterator[Measurement]:
    """The allocator's peaks: growth over the state before, then the process's own totals."""
    gc.collect()
    device.synchronize(work.device)
    api.empty_cache()
    before = api.memory_allocated(work.device)
    api.reset_peak_memory_stats(work.device)
    for run in runs:
        run()
    name = work.device.type.upper()
    allocated = api.max_memory_allocated(work.device)
    yield _bytes("memory.peak", allocated - before, f"{name} allocator, peak allocated above the state before; {told}")
    whole = "all that this process holds on the device, other models too"
    yield _bytes("memory.allocated", allocated, f"{name} allocator, peak allocated; {whole}; {told}")
    reserved = api.max_memory_reserved(work.device)
    yield _bytes("memory.reserved", reserved, f"{name} allocator, peak reserved; {whole}; {told}")


def _without_allocator(work: Workload, runs: list[Run], told: str) -> Measurement:
    if work.device.type == "cpu":
        peak = _process_peak.process_peak(runs)
    elif work.device.type == "mps":
        what = "torch.mps.current_allocated_memory"
        peak = _process_peak.sampled_peak(runs, torch.mps.current_allocated_memory, what)
    else:
        return unavailable("memory.peak", "B", "lower", f"no peak counters of {work.device.type} are known")
    if peak.n_bytes > 0:
        return _bytes("memory.peak", peak.n_bytes, f"{peak.method}; {told}", peak.cautions)
    return unavailable("memory.peak", "B", "lower", f"no growth seen: {peak.method}; {told}", *peak.cautions)


def _children(runs: list[Run]) -> Measurement:
    """What child processes hold while the batches run; 0 without any."""
    if not _process_peak.tells_shares():
        for run in runs:
            run()
        reason = "this system does not tell a process's share in pages that several have (PSS)"
        return unavailable("memory.children", "B", "lower", reason)
    period_s = _process_peak.CHILDREN_S
    with _beside.highest(_process_peak.children_bytes, period_s) as highest:
        for run in runs:
            run()
        held = highest()
    method = f"child processes while the batches run, shared pages divided (PSS), sampled each {period_s * 1000:.0f} ms"
    return _bytes("memory.children", held, method)


def _bytes(name: str, value: int, method: str, cautions: tuple[Caution, ...] = ()) -> Measurement:
    return Measurement(
        name=name, unit="B", better="lower", source="measured", method=method, value=value, cautions=cautions
    )
