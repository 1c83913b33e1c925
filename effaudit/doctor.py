"""What can be measured on this machine, by which method, how finely, and what would give a better figure."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from effaudit import device, peak, units
from effaudit.kernels import library as kernels
from effaudit.kernels import products
from effaudit.meters import _codecarbon, _instruments, _load, _nvml, _process_peak, _rapl, memory
from effaudit.record import Caution

EXACT = "exact"
PEAKS = "peaks of torch's allocator after a reset: allocated, reserved"


@dataclass(frozen=True)
class Finding:
    """One thing that may be measured or used; `method` is empty when it is not, and `reason` says why.

    With a method, `reason` says what stands against its figures. `remedy` is the next step, if any.
    """

    what: str
    is_available: bool
    method: str = ""
    resolution: str = ""
    reason: str = ""
    remedy: str = ""


def survey(sleep: Callable[[float], None] = time.sleep) -> tuple[Finding, ...]:
    """Devices, then every meter; takes a few seconds where energy has to be modelled."""
    accelerator = next((kind for kind in device.available() if kind != "cpu"), None)
    return (
        *_devices(accelerator),
        *_types(),
        _kernels(),
        Finding("routing", True, "decisions that the model returns, counted", EXACT),
        Finding("quality", True, "labels against the path that is timed", "one example"),
        Finding("flops", True, "operations counted as torch dispatches them", EXACT),
        *_memory(accelerator),
        _latency(sleep),
        *_cpu_energy(),
        _accelerator_energy(accelerator),
        Finding(
            "emissions",
            True,
            "energy x carbon intensity x PUE",
            "that of energy; intensities are means of a year",
            "no country is assumed",
            "give --country ISO3, with --region where the country has them, or --intensity",
        ),
    )


def _kernels() -> Finding:
    if kernels.library() is not None:
        whose = "own" if products.is_quicker() else "torch's"
        value = f"own ones of the variants on one CPU thread, else torch's; {whose} products are the quicker ones here"
        return Finding("kernels", True, value)
    remedy = "install a C++ compiler, or set CXX, and see that the cache folder can be written"
    return Finding("kernels", True, "torch's alone", reason="the own ones were not compiled", remedy=remedy)


def _devices(accelerator: str | None) -> Iterator[Finding]:
    model, flags = device.cpu()
    sets = ", ".join(flags) or "no instruction sets known"
    with device.threads(1):
        rate = peak.estimate(torch.device("cpu"), "float32")
    reached = f", {units.quantity(rate, 'FLOP/s')} with one thread in float32" if rate else ""
    yield Finding("device cpu", True, f"{model}, {device.n_cpus()} CPUs{reached}, {sets}")
    if accelerator == "cuda":
        for index in range(torch.cuda.device_count()):
            yield Finding(f"device cuda:{index}", True, torch.cuda.get_device_name(index))
    elif torch.version.cuda is None:
        yield Finding(
            "device cuda", False, reason="this torch is built without CUDA", remedy="see pytorch.org/get-started"
        )
    else:
        yield Finding("device cuda", False, reason="torch finds no working NVIDIA GPU", remedy="check nvidia-smi")
    if accelerator == "mps":
        yield _apple()
    else:
        yield Finding("device mps", False, reason="no Apple GPU that torch can use")
    if accelerator not in (None, "cuda", "mps"):
        yield Finding(f"device {accelerator}", True, "through torch.accelerator")


def _apple() -> Finding:
    if device.label(torch.device("mps")) == "mps":
        return Finding("device mps", True, "Apple GPU")
    reason = f"{device.FALLBACK} is set: what MPS lacks runs on the CPU, and records say `mps+cpu_fallback`"
    return Finding("device mps", True, "Apple GPU", reason=reason, remedy=f"unset {device.FALLBACK} for pure MPS")


def _types() -> Iterator[Finding]:
    for name, sets in device.INSTRUCTIONS.items():
        if device.has_fast(name, torch.device("cpu")):
            yield Finding(f"{name} on cpu", True, "native instructions")
        else:
            reason = f"no {sets}: it would be emulated and slow"
            yield Finding(f"{name} on cpu", False, reason=reason, remedy="use float32")


def _latency(sleep: Callable[[float], None]) -> Finding:
    cautions = (*_load.cautions_now(_load.look(sleep)), *_load.governor_cautions([device.governor()]))
    resolution_s = time.get_clock_info("perf_counter").resolution
    method = "monotonic clock, device synchronised before and after each batch, models in turns"
    return Finding("latency", True, method, f"{resolution_s:.0e} s", *_told(cautions))


def _memory(accelerator: str | None) -> Iterator[Finding]:
    if _process_peak.can_reset_peak():
        method = "growth of the process's own peak (VmHWM, reset before)"
        yield Finding("memory on cpu", True, method, f"{_process_peak.resolution() // 1024} KiB")
    else:
        reason = "the kernel has no peak that can be reset: short peaks may be missed"
        method = "resident set, sampled by a thread"
        yield Finding("memory on cpu", True, method, _milliseconds(_process_peak.SAMPLING_S), reason, "use Linux")
    if _process_peak.tells_shares():
        method = "PSS: pages that several processes share are divided among them"
        yield Finding("memory of child processes", True, method, f"each {_milliseconds(_process_peak.CHILDREN_S)}")
    else:
        yield Finding("memory of child processes", False, reason="this system tells no PSS", remedy="use Linux")
    if accelerator == "cuda":
        yield Finding("memory on cuda", True, PEAKS, "512 B")
    elif accelerator == "mps":
        reason, method = "short peaks may be missed", "torch.mps.current_allocated_memory, sampled by a thread"
        yield Finding("memory on mps", True, method, _milliseconds(_process_peak.SAMPLING_S), reason, "use CUDA")
    elif accelerator is not None and memory.allocator_of(torch.device(accelerator)) is not None:
        yield Finding(f"memory on {accelerator}", True, PEAKS, "what the allocator rounds to")
    elif accelerator is not None:
        yield Finding(f"memory on {accelerator}", False, reason=f"no peak counters of {accelerator} are known")


def _cpu_energy() -> Iterator[Finding]:
    rapl = _rapl.find_counters()
    if rapl.found:
        domains = ", ".join(source.domain for source in rapl.found)
        yield Finding("energy of cpu", True, f"RAPL counters of {domains}", _ticks(_rapl.TICK_S))
        return
    remedy = rapl.hint or "use a machine with readable RAPL counters"
    yield Finding("energy of cpu, measured", False, reason=rapl.reason, remedy=remedy)
    model = _codecarbon.find_model()
    reason, advice = _told(model.cautions)
    reason = "; ".join(filter(None, [model.reason or "follows CPU time and time, not what is drawn", reason]))
    method = "; ".join(source.method for source in model.found)
    resolution = "none: not a measurement" if model.found else ""
    yield Finding("energy of cpu, modelled", bool(model.found), method, resolution, reason, advice)


def _accelerator_energy(accelerator: str | None) -> Finding:
    what = "energy of gpu"
    if accelerator is None:
        return Finding(what, False, reason="no GPU that torch can use")
    if accelerator != "cuda":
        return Finding(what, False, reason=f"no counter of {accelerator} can be read without administrator rights")
    gpu = _nvml.find_counter(torch.device("cuda", torch.cuda.current_device()))
    if not gpu.found:
        return Finding(what, False, reason=gpu.reason, remedy=gpu.hint)
    source = gpu.found[0]
    return Finding(what, True, f"{source.method} of {source.domain}", _ticks(_nvml.TICK_S), *_told(gpu.cautions))


def _ticks(tick_s: float) -> str:
    return f"updated each {_milliseconds(tick_s)}, so windows of {max(2.0, _instruments.MIN_TICKS * tick_s):g} s"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:g} ms"


def _told(cautions: tuple[Caution, ...]) -> tuple[str, str]:
    """The texts and the hints of cautions, each joined."""
    return "; ".join(caution.text for caution in cautions), "; ".join(caution.hint for caution in cautions)
