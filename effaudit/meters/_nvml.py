"""The total-energy counter of the NVIDIA GPU that a torch device means."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import torch

from effaudit.meters._sources import Sources

TICK_S = 0.1  # the counter is updated about ten times a second (ML.ENERGY, Zeus)


@dataclass(frozen=True)
class Counter:
    """J that one GPU has used since its driver was loaded; reading raises OSError when the driver refuses."""

    nvml: ModuleType
    handle: Any  # NVML's opaque device pointer
    domain: str
    method: str = "NVML total-energy counter"
    is_modelled: bool = False
    tick_s: float = TICK_S

    def read(self) -> float:
        try:
            return float(self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle)) / 1000  # mJ
        except self.nvml.NVMLError as error:
            raise OSError(str(error)) from error


def find_counter(device: torch.device, nvml: ModuleType | None = None) -> Sources:
    """The counter of `device` (cuda), mapped through CUDA_VISIBLE_DEVICES to the physical GPU."""
    if nvml is None:
        try:
            nvml = import_module("pynvml")
        except ImportError:
            return Sources(reason="NVML's Python module is missing", hint="pip install nvidia-ml-py")
    entry = visible_entry(device.index or 0, os.environ.get("CUDA_VISIBLE_DEVICES"))
    if entry.startswith("MIG"):
        return Sources(reason="a MIG slice has no energy counter of its own, NVML counts the whole GPU")
    try:
        nvml.nvmlInit()
        handle = _handle(nvml, entry, _uuid(device))
        counter = Counter(nvml, handle, f"gpu-{nvml.nvmlDeviceGetIndex(handle)}")
        counter.read()
    except (nvml.NVMLError, OSError, LookupError) as error:
        return Sources(reason=f"no NVML energy counter: {error}", hint="GPUs since Volta have one; check the driver")
    return Sources(found=(counter,))


def visible_entry(index: int, visible: str | None) -> str:
    """The entry of CUDA_VISIBLE_DEVICES (an index, a UUID or its beginning) that torch calls `cuda:index`."""
    entries = [entry.strip() for entry in visible.split(",")] if visible else []
    return entries[index] if index < len(entries) else str(index)


def _uuid(device: torch.device) -> str | None:
    """The UUID that the CUDA runtime gives: sure even where CUDA and NVML number the GPUs differently."""
    if not torch.cuda.is_available():
        return None
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return f"GPU-{uuid}" if uuid else None


def _handle(nvml: ModuleType, entry: str, uuid: str | None) -> Any:
    """NVML's handle, by UUID if one is known, else by index in PCI order.

    Raises LookupError when no GPU has that UUID.
    """
    if uuid is None and entry.isdigit():
        return nvml.nvmlDeviceGetHandleByIndex(int(entry))
    wanted = uuid or entry
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        found = nvml.nvmlDeviceGetUUID(handle)
        if (found.decode() if isinstance(found, bytes) else found).startswith(wanted):
            return handle
    raise LookupError(f"no GPU with UUID {wanted}")
