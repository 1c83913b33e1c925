"""The energy of the NVIDIA GPU that a torch device means: its counter, else its power, sampled."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any

import torch

from effaudit.meters import _beside
from effaudit.meters._sources import Part, Sources
from effaudit.record import Caution

TICK_S = 0.1  # counter and power are updated about ten times a second (ML.ENERGY, Zeus)
SAMPLING_S = 0.05  # twice an update

Clock = Callable[[], float]


@dataclass(frozen=True)
class Counter:
    """J that one GPU has used since its driver was loaded; reading raises OSError when the driver refuses."""

    nvml: ModuleType
    handle: Any  # NVML's opaque device pointer
    domain: str
    method: str = "NVML total-energy counter"
    part: Part = "gpu"
    is_modelled: bool = False
    tick_s: float = TICK_S

    def read(self) -> float:
        try:
            return float(self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle)) / 1000  # mJ
        except self.nvml.NVMLError as error:
            raise OSError(str(error)) from error


@dataclass
class Power:
    """J that one GPU has used since the first reading: its power times the time between readings, means of both ends.

    Within `sampling` a thread reads between the readings; reading raises OSError when the driver refuses.
    """

    nvml: ModuleType
    handle: Any
    domain: str
    clock: Clock = time.perf_counter
    method: str = f"NVML power, sampled each {SAMPLING_S * 1000:.0f} ms and summed"
    part: Part = "gpu"
    is_modelled: bool = False
    tick_s: float = TICK_S
    _joules: float = 0.0
    _last: tuple[float, float] | None = None  # moment in s, W
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self) -> float:
        with self._lock:
            try:
                watts = float(self.nvml.nvmlDeviceGetPowerUsage(self.handle)) / 1000  # mW
            except self.nvml.NVMLError as error:
                raise OSError(str(error)) from error
            now = self.clock()
            if self._last is not None:
                then, before = self._last
                self._joules += (watts + before) / 2 * (now - then)
            self._last = (now, watts)
            return self._joules

    @contextmanager
    def sampling(self) -> Iterator[None]:
        with _beside.repeated(self.read, SAMPLING_S):
            yield


def find_counter(device: torch.device, nvml: ModuleType | None = None, clock: Clock = time.perf_counter) -> Sources:
    """The counter of `device` (cuda), mapped through CUDA_VISIBLE_DEVICES to the physical GPU, or its sampled power."""
    if nvml is None:
        try:
            nvml = import_module("pynvml")
        except ImportError:
            return Sources(reason="NVML's Python module is missing", hint="pip install nvidia-ml-py")
    entry = visible_entry(device.index or 0, os.environ.get("CUDA_VISIBLE_DEVICES"))
    if entry.startswith("MIG"):
        return _divided(entry)
    try:
        nvml.nvmlInit()
        handle = _handle(nvml, entry, _uuid(device))
        if handle is None and _any_divided(nvml):  # a slice has a UUID of its own
            return _divided(str(device))
        if handle is None:
            raise LookupError(f"no GPU with UUID {_uuid(device) or entry}")
        name = f"gpu-{nvml.nvmlDeviceGetIndex(handle)}"
        if _is_divided(nvml, handle):
            return _divided(name)
        return _by_counter(nvml, handle, name) or _by_power(nvml, handle, name, clock)
    except (nvml.NVMLError, OSError, LookupError) as error:
        return Sources(
            reason=f"no NVML energy counter and no power: {error}",
            hint="check the driver with `nvidia-smi -q -d POWER`",
        )


def visible_entry(index: int, visible: str | None) -> str:
    """The entry of CUDA_VISIBLE_DEVICES (an index, a UUID or its beginning) that torch calls `cuda:index`."""
    entries = [entry.strip() for entry in visible.split(",")] if visible else []
    return entries[index] if index < len(entries) else str(index)


def _by_counter(nvml: ModuleType, handle: Any, name: str) -> Sources | None:
    counter = Counter(nvml, handle, name)
    try:
        counter.read()
    except OSError:
        return None
    return Sources(found=(counter,))


def _by_power(nvml: ModuleType, handle: Any, name: str, clock: Clock) -> Sources:
    power = Power(nvml, handle, name, clock)
    power.read()
    text = f"{name} has no energy counter: its power is sampled, and some sensors see only a quarter of the time"
    hint = "GPUs since Volta have a counter; with sampled power compare only large differences"
    return Sources(found=(power,), cautions=(Caution(code="sampled_power", text=text, hint=hint),))


def _divided(what: str) -> Sources:
    reason = f"{what} is a MIG slice or divided into such: NVML counts the energy of the whole GPU only"
    return Sources(reason=reason, hint="measure on a GPU without MIG")


def _is_divided(nvml: ModuleType, handle: Any) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except nvml.NVMLError:
        return False  # not supported: it cannot be divided


def _any_divided(nvml: ModuleType) -> bool:
    return any(_is_divided(nvml, handle) for handle in _handles(nvml))


def _uuid(device: torch.device) -> str | None:
    """The UUID that the CUDA runtime gives: sure even where CUDA and NVML number the GPUs differently."""
    if not torch.cuda.is_available():
        return None
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return f"GPU-{uuid}" if uuid else None


def _handle(nvml: ModuleType, entry: str, uuid: str | None) -> Any:
    """NVML's handle, by UUID if one is known, else by index in PCI order; None when no GPU has that UUID."""
    if uuid is None and entry.isdigit():
        return nvml.nvmlDeviceGetHandleByIndex(int(entry))
    wanted = uuid or entry
    for handle in _handles(nvml):
        found = nvml.nvmlDeviceGetUUID(handle)
        if (found.decode() if isinstance(found, bytes) else found).startswith(wanted):
            return handle
    return None


def _handles(nvml: ModuleType) -> Iterator[Any]:
    """Those of the GPUs that we may see; NVML counts all."""
    for index in range(nvml.nvmlDeviceGetCount()):
        with suppress(nvml.NVMLError):
            yield nvml.nvmlDeviceGetHandleByIndex(index)
