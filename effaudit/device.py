"""Which device a model runs on, and what about the machine makes timings comparable."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from effaudit.errors import EffauditError, unknown_name
from effaudit.kernels import library as kernels
from effaudit.record import Environment

CPUINFO = Path("/proc/cpuinfo")
# instruction sets that decide how fast matrix products are, as Linux spells them (x86, then Arm)
FLAGS = ("sse4_2", "avx", "avx2", "fma", "f16c", "avx512", "avx_vnni", "amx", "asimd", "neon", "sve", "bf16", "i8mm")
ALIASES = {
    "gpu": "cuda",
    "nvidia": "cuda",
    "metal": "mps",
    "apple": "mps",
}  # what people write, too far off to be guessed
NATIVE = {  # a CPU without one of these emulates the type
    "bfloat16": ("avx512_bf16", "amx_bf16", "bf16", "svebf16"),
    "float16": ("avx512_fp16", "amx_fp16", "asimdhp"),
}
INSTRUCTIONS = {
    "bfloat16": "AVX512-BF16, AMX or Arm BF16",
    "float16": "AVX512-FP16, AMX-FP16 or Arm FP16",
}
APPLE_FLAGS = {"FEAT_BF16": "bf16", "FEAT_FP16": "asimdhp", "FEAT_I8MM": "i8mm"}  # sysctl hw.optional.arm -> as Linux
FALLBACK = "PYTORCH_ENABLE_MPS_FALLBACK"  # makes torch run on the CPU what MPS lacks
GOVERNORS = Path("/sys/devices/system/cpu")


def resolve(name: str) -> torch.device:
    """The device of that name; `auto` takes the accelerator if there is one, else the CPU.

    Raises EffauditError for an unknown name and for a device that this machine lacks.
    """
    present = available()
    kind, _, index = name.partition(":")
    if name == "auto":
        return torch.device(present[-1])
    if kind not in {"cpu", "cuda", "mps", *present} or (index and not index.isdigit()):
        if kind in ALIASES:
            raise EffauditError(f"no `{name}` among the devices", f"did you mean `{ALIASES[kind]}`?")
        raise unknown_name("devices", name, {"auto", "cpu", "cuda", "mps", *present})
    if kind not in present:
        raise EffauditError(f"no `{kind}` device on this machine", f"present: {', '.join(present)}; or use `auto`")
    n = 1 if kind in ("cpu", "mps") else torch.accelerator.device_count()
    if index and int(index) >= n:
        raise EffauditError(f"no `{name}` on this machine", f"it has {n} {kind} device(s), counted from 0")
    return torch.device(name)


def available() -> tuple[str, ...]:
    """The kinds of device that work here: `cpu`, then the accelerator if there is one."""
    if torch.cuda.is_available():
        return ("cpu", "cuda")
    if torch.backends.mps.is_available():
        return ("cpu", "mps")
    if torch.accelerator.is_available() and (current := torch.accelerator.current_accelerator()) is not None:
        return ("cpu", current.type)
    return ("cpu",)


def synchronize(device: torch.device) -> None:
    """Waits until everything queued on `device` has run; a CPU queues nothing."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
    elif device.type not in ("cpu", "meta"):
        torch.accelerator.synchronize(device)


@contextmanager
def threads(n: int) -> Iterator[None]:
    """Sets torch's CPU threads to `n` and restores what was set before."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def environment(device: torch.device, dtype: str, threads: int) -> Environment:
    """What a record says about machine and software; `threads` are those of the timed figures."""
    cpu_model, flags = cpu()
    has_kernels = (device.type, dtype, threads) == ("cpu", "float32", 1) and kernels.library() is not None
    facts = {
        "device": label(device),
        "device_name": _device_name(device, cpu_model),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu_model": cpu_model,
        "cpu_flags": flags,
        "n_cpus": n_cpus(),
        "threads": threads,
        "dtype": dtype,
        "attention": "own" if has_kernels else "torch",
        "products": "own" if has_kernels and _are_own_products_quicker() else "torch",
    }
    return Environment.model_validate(
        {
            **facts,
            "governor": governor(),
            "load_average": load_average(),
            "git_commit": _git_commit(),
            "fingerprint": _fingerprint(facts),
        }
    )


def _are_own_products_quicker() -> bool:
    from effaudit.kernels import products  # which builds on this module

    return products.is_quicker()


def _fingerprint(facts: dict[str, object]) -> str:
    """Hash of what timings depend on; the kernel's release and Python's patch level are left out as too fickle."""
    decisive = {
        **facts,
        "device": re.sub(r":\d+", "", str(facts["device"])),
        "python": ".".join(platform.python_version_tuple()[:2]),
        "os": f"{platform.system()} {platform.machine()}",
        "kernels": torch.backends.cpu.get_cpu_capability(),  # ATEN_CPU_CAPABILITY can lower it
    }
    if facts["products"] == "torch":  # as everywhere before there were others
        del decisive["products"]
    return hashlib.sha256(repr(sorted(decisive.items())).encode()).hexdigest()[:12]


def load_average() -> tuple[float, float, float] | None:
    """Runnable processes over 1, 5 and 15 minutes; None where the system keeps no such figure."""
    return os.getloadavg() if hasattr(os, "getloadavg") else None


def n_cpus() -> int:
    """The logical CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def n_sockets() -> int:
    """Processor packages, by /proc/cpuinfo; 1 where it does not tell."""
    try:
        lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return 1
    return len({line for line in lines if line.startswith("physical id")}) or 1


def is_virtual() -> bool:
    """Whether the CPU says that a hypervisor shares it out."""
    return "hypervisor" in _cpuinfo().get("flags", "").split()


def is_intel() -> bool:
    """Whether Intel made the CPU."""
    vendor = _cpuinfo().get("vendor_id")
    return vendor == "GenuineIntel" if vendor else "intel" in f"{cpu()[0]} {platform.processor()}".lower()


def cpu() -> tuple[str, tuple[str, ...]]:
    """The CPU's model name and those of its instruction sets that FLAGS names."""
    if sys.platform == "darwin":
        model = _output("sysctl", "-n", "machdep.cpu.brand_string") or platform.processor()
        return model, _apple_flags() if platform.machine() == "arm64" else ()
    model = _cpuinfo().get("model name") or platform.processor() or platform.machine() or "unknown"
    return model, tuple(word for word in instruction_sets() if word.startswith(FLAGS))


def instruction_sets() -> tuple[str, ...]:
    """All that the CPU has, by name."""
    if sys.platform == "darwin":
        return _apple_flags() if platform.machine() == "arm64" else ()
    fields = _cpuinfo()
    return tuple(sorted({*(fields.get("flags") or fields.get("Features") or "").split()}))


def _apple_flags() -> tuple[str, ...]:
    has = {flag for key, flag in APPLE_FLAGS.items() if _output("sysctl", "-n", f"hw.optional.arm.{key}") == "1"}
    return tuple(sorted({"neon", *has}))


def has_fast(dtype: str, device: torch.device) -> bool:
    """Whether a type is computed natively: always taken so on an accelerator, by instruction set on a CPU."""
    return device.type != "cpu" or dtype not in NATIVE or not set(NATIVE[dtype]).isdisjoint(cpu()[1])


def governor() -> str | None:
    """What sets the frequency of the first CPU that this process may use; None where the system does not tell."""
    first = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    try:
        return (GOVERNORS / f"cpu{first}/cpufreq/scaling_governor").read_text().strip() or None
    except OSError:
        return None


def label(device: torch.device) -> str:
    """The device's name; `mps+cpu_fallback` where torch may run on the CPU what MPS lacks."""
    is_mixed = device.type == "mps" and os.environ.get(FALLBACK, "0") not in ("", "0")
    return f"{device}+cpu_fallback" if is_mixed else str(device)


def _cpuinfo() -> dict[str, str]:
    """The first processor's fields; empty where there is no /proc."""
    try:
        first = CPUINFO.read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _device_name(device: torch.device, cpu_model: str) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return cpu_model if device.type == "cpu" else f"{device.type} ({cpu_model})"


def _git_commit() -> str | None:
    """The commit of the current directory, `-dirty` appended if files differ; None outside a checkout."""
    described = ("describe", "--always", "--dirty", "--abbrev=40", "--exclude", "*")
    return _output("git", "--no-optional-locks", *described)  # a refreshed index would be a trace


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
