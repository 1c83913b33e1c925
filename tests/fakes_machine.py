"""A clock, an accelerator, energy counters and a workload that tests own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from effaudit.workload import Batch, Output, Routing, Workload

CPU = torch.device("cpu")


@dataclass
class FakeClock:
    """Seconds that pass only when told; `drawn_j` grows with them at the power in force."""

    now: float = 100.0
    idle_w: float = 10.0
    drawn_j: float = 0.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float, power_w: float | None = None) -> None:
        self.now += seconds
        self.drawn_j += seconds * (self.idle_w if power_w is None else power_w)

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)


@dataclass
class FakeCounter:
    """An energy counter that shows what `clock` has drawn, updated each `tick_s`."""

    clock: FakeClock
    tick_s: float = 0.1
    domain: str = "gpu-0"
    method: str = "fake counter"
    is_modelled: bool = False
    shown: float = field(default=0.0)
    ticked: float = field(default=0.0)

    def read(self) -> float:
        tick = self.clock.now // self.tick_s
        if tick != self.ticked:
            self.ticked, self.shown = tick, self.clock.drawn_j
        return self.shown


class Scripted(nn.Module):
    """A model whose forward calls `act(batch)` and returns zeros."""

    def __init__(self, act: Callable[[Batch], object]) -> None:
        super().__init__()
        self.act = act

    def forward(self, batch: Batch, routing: Routing | None = None) -> Output:
        self.act(batch)
        return Output(torch.zeros(batch.n_examples, 2), Routing())


def batch(n_examples: int = 2, n_tokens: int = 4, n_real: int | None = None) -> Batch:
    """Zeros; the first `n_real` tokens of each example are real."""
    mask = torch.arange(n_tokens).expand(n_examples, n_tokens) < (n_tokens if n_real is None else n_real)
    return Batch(
        tokens=torch.zeros(n_examples, n_tokens, dtype=torch.int64),
        mask=mask,
        labels=torch.zeros(n_examples, dtype=torch.int64),
        index=torch.arange(n_examples),
        is_padded=not bool(mask.all()),
    )


def workload(
    act: Callable[[Batch], object] | nn.Module,
    batches: Sequence[Batch] = (),
    name: str = "model",
    device: torch.device = CPU,
) -> Workload:
    """`act` runs in each forward; one batch unless others are given."""
    stream = list(batches) or [batch()]

    def start() -> Iterator[Batch]:
        return iter(stream)

    model = act if isinstance(act, nn.Module) else Scripted(act)
    return Workload(
        name=name,
        model=model,
        task="classification",
        n_layers=1,
        device=device,
        execution="skip",
        is_skipping_tokens=False,
        is_characters=False,
        batches=start,
        flops=lambda batch, routing, execution: torch.zeros(batch.n_examples, dtype=torch.int64),
    )


def powercap(root: Path, zones: dict[str, tuple[str, int]], range_uj: int = 262_143_328_850) -> Path:
    """A tree as under /sys/class/powercap: folder name -> (zone name, energy_uj)."""
    for folder, (name, energy_uj) in zones.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / "name").write_text(f"{name}\n")
        (root / folder / "energy_uj").write_text(f"{energy_uj}\n")
        (root / folder / "max_energy_range_uj").write_text(f"{range_uj}\n")
    return root


class NVMLError(Exception):
    """As pynvml raises."""


def nvml(n_gpus: int, *, is_supported: bool = True) -> Any:
    """pynvml for `n_gpus` GPUs `GPU-<index>-uuid`; GPU i has used i kJ."""

    def energy_mj(handle: int) -> int:
        if not is_supported:
            raise NVMLError("Not Supported")
        return handle * 1_000_000

    return SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: n_gpus,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetIndex=lambda handle: handle,
        nvmlDeviceGetUUID=lambda handle: f"GPU-{handle}-uuid",
        nvmlDeviceGetTotalEnergyConsumption=energy_mj,
    )
