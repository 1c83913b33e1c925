"""What can be measured on this machine, by which method, and what would give a better one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from effaudit import device
from effaudit.meters import _codecarbon, _load, _nvml, _rapl, memory

GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
LOOK_S = 0.3  # how long the machine is watched for other work


@dataclass(frozen=True)
class Finding:
    """One thing that may be measured or used; `method` is empty when it is not, and `reason` says why.

    With a method, `reason` says what stands against its figures. `remedy` is the next step, if any.
    """

    what: str
    is_available: bool
    method: str = ""
    reason: str = ""
    remedy: str = ""


def survey(sleep: Callable[[float], None] = time.sleep) -> tuple[Finding, ...]:
    """Devices, then every meter; takes a few seconds where energy has to be modelled."""
    accelerator = next((kind for kind in device.available() if kind != "cpu"), None)
    return (
        *_devices(accelerator),
        _bfloat16(),
        Finding("FLOPs", True, "operations counted as torch dispatches them, exact"),
        _time(sleep),
        *_memory(accelerator),
        *_cpu_energy(),
        _accelerator_energy(accelerator),
        Finding("emissions", True, "energy x carbon intensity x PUE", "no country is assumed", "give --country ISO3"),
    )


def _devices(accelerator: str | None) -> Iterator[Finding]:
    model, flags = device.cpu()
    sets = ", ".join(flags) or "no instruction sets known"
    yield Finding("device cpu", True, f"{model}, {device.n_cpus()} CPUs, {sets}")
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
        yield Finding("device mps", True, "Apple GPU")
    else:
        yield Finding("device mps", False, reason="no Apple GPU that torch can use")
    if accelerator not in (None, "cuda", "mps"):
        yield Finding(f"device {accelerator}", True, "through torch.accelerator")


def _bfloat16() -> Finding:
    if device.has_fast_bf16(torch.device("cpu")):
        return Finding("bfloat16 on cpu", True, "native instructions")
    reason = "no AVX512-BF16, AMX or Arm BF16: it would be emulated and slow"
    return Finding("bfloat16 on cpu", False, reason=reason, remedy="use float32")


def _time(sleep: Callable[[float], None]) -> Finding:
    watch = _load.LoadWatch()
    sleep(LOOK_S)
    cautions = watch.read().cautions(torch.get_num_threads())
    reasons = [caution.text for caution in cautions]
    remedies = [caution.hint for caution in cautions]
    if (governor := _governor()) in ("powersave", "conservative", "ondemand", "schedutil"):
        reasons.append(f"CPU frequency follows load (governor {governor})")
        remedies.append("sudo cpupower frequency-set -g performance")
    resolution_s = time.get_clock_info("perf_counter").resolution
    method = f"monotonic clock, resolution {resolution_s:.0e} s, device synchronised"
    return Finding("time", True, method, "; ".join(reasons), "; ".join(remedies))


def _governor() -> str | None:
    try:
        return GOVERNOR.read_text().strip()
    except OSError:
        return None


def _memory(accelerator: str | None) -> Iterator[Finding]:
    if memory.can_reset_peak():
        method = f"growth of the process's peak (VmHWM, reset), resolution {memory.resolution() // 1024} KiB"
        yield Finding("memory on cpu", True, method)
    else:
        reason = "the kernel has no peak that can be reset: short peaks may be missed"
        yield Finding("memory on cpu", True, "resident set, sampled each millisecond", reason, "use Linux")
    if accelerator == "cuda":
        yield Finding("memory on cuda", True, "peaks of torch's allocator after a reset: allocated, reserved")
    elif accelerator == "mps":
        yield Finding("memory on mps", True, "current_allocated_memory, sampled each millisecond")


def _cpu_energy() -> Iterator[Finding]:
    rapl = _rapl.find_counters()
    if rapl.found:
        domains = ", ".join(source.domain for source in rapl.found)
        yield Finding("energy of cpu", True, f"RAPL counters of {domains}, updated each {_rapl.TICK_S * 1000:g} ms")
        return
    yield Finding("energy of cpu, measured", False, reason=rapl.reason, remedy=rapl.hint)
    model = _codecarbon.find_model()
    method = "; ".join(source.method for source in model.found)
    reason = model.reason or "follows CPU time and time, not what the machine really draws"
    yield Finding("energy of cpu, modelled", bool(model.found), method, reason)


def _accelerator_energy(accelerator: str | None) -> Finding:
    what = "energy of gpu"
    if accelerator is None:
        return Finding(what, False, reason="no GPU that torch can use")
    if accelerator != "cuda":
        return Finding(what, False, reason=f"no counter of {accelerator} can be read without administrator rights")
    gpu = _nvml.find_counter(torch.device("cuda", torch.cuda.current_device()))
    if not gpu.found:
        return Finding(what, False, reason=gpu.reason, remedy=gpu.hint)
    return Finding(
        what, True, f"{gpu.found[0].method} of {gpu.found[0].domain}, updated each {_nvml.TICK_S * 1000:g} ms"
    )
