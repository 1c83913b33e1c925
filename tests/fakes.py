"""A clock, accelerators, energy counters and workloads that tests own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
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
class FakeAccelerator:
    """A device that queues work at once and does it when it is waited for; counts the waits."""

    clock: FakeClock
    kind: str = "cuda"
    n_waits: int = 0
    queue: list[float] = field(default_factory=list)
    events: list[str] = field(default_factory=list)

    @property
    def device(self) -> torch.device:
        return torch.device(self.kind)

    def launch(self, seconds: float) -> None:
        self.queue.append(seconds)
        self.events.append("run")

    def synchronize(self, *_: object) -> None:
        self.clock.advance(sum(self.queue))
        self.queue.clear()
        self.n_waits += 1
        self.events.append("wait")

    def read_clock(self) -> float:
        self.events.append("clock")
        return self.clock()

    def install(self, patch: pytest.MonkeyPatch) -> FakeAccelerator:
        module = {"cuda": torch.cuda, "mps": torch.mps}.get(self.kind, torch.accelerator)
        patch.setattr(module, "synchronize", self.synchronize)
        return self


@dataclass
class FakeAllocator:
    """The counters of torch's caching allocator, those of an earlier model's peaks still in them."""

    allocated: int = 30
    peak: int = 5000
    reserved: int = 9000

    def take(self, n_bytes: int, rounded_up: int) -> None:
        """A forward that has `n_bytes` more at its peak, for which the allocator reserves more."""
        self.peak = max(self.peak, self.allocated + n_bytes)
        self.reserved = max(self.reserved, rounded_up)

    def install(self, patch: pytest.MonkeyPatch, module: Any = torch.cuda) -> FakeAllocator:
        def reset(_: object) -> None:
            self.peak = self.reserved = self.allocated

        patch.setattr(module, "synchronize", lambda *_: None)
        patch.setattr(module, "empty_cache", lambda: None, raising=False)
        patch.setattr(module, "memory_allocated", lambda _: self.allocated, raising=False)
        patch.setattr(module, "max_memory_allocated", lambda _: self.peak, raising=False)
        patch.setattr(module, "max_memory_reserved", lambda _: self.reserved, raising=False)
        patch.setattr(module, "reset_peak_memory_stats", reset, raising=False)
        return self


@dataclass
class FakeMpsAllocator:
    """What MPS tells: tensors in use, and all that the driver holds, which is no peak of the model's."""

    held: int = 1000
    driver: int = 11_323

    def install(self, patch: pytest.MonkeyPatch) -> FakeMpsAllocator:
        patch.setattr(torch.mps, "synchronize", lambda: None)
        patch.setattr(torch.mps, "current_allocated_memory", lambda: self.held)
        patch.setattr(torch.mps, "driver_allocated_memory", lambda: self.driver)
        return self


@dataclass
class FakeCounter:
    """An energy counter that shows what `clock` has drawn, updated each `tick_s`."""

    clock: FakeClock
    tick_s: float = 0.1
    domain: str = "gpu-0"
    method: str = "fake counter"
    is_modelled: bool = False
    part: Any = "cpu"
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


def use(root: Path, joules: dict[str, float]) -> None:
    """Lets zones of a `powercap` tree consume."""
    for folder, spent in joules.items():
        path = root / folder / "energy_uj"
        path.write_text(str(int(path.read_text()) + int(spent * 1e6)))


class NVMLError(Exception):
    """As pynvml raises."""


def nvml(
    n_gpus: int, *, has_counter: bool = True, power_w: Callable[[], float] | None = None, is_mig: bool = False
) -> Any:
    """pynvml for `n_gpus` GPUs `GPU-<index>-uuid`; GPU i has used i kJ; what is not there is not supported."""

    def energy_mj(handle: int) -> int:
        if not has_counter:
            raise NVMLError("Not Supported")
        return handle * 1_000_000

    def power_mw(handle: int) -> int:
        if power_w is None:
            raise NVMLError("Not Supported")
        return round(power_w() * 1000)

    def mig_mode(handle: int) -> list[int]:
        if not is_mig:
            raise NVMLError("Not Supported")
        return [1, 1]

    return SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: n_gpus,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetIndex=lambda handle: handle,
        nvmlDeviceGetUUID=lambda handle: f"GPU-{handle}-uuid",
        nvmlDeviceGetMigMode=mig_mode,
        nvmlDeviceGetTotalEnergyConsumption=energy_mj,
        nvmlDeviceGetPowerUsage=power_mw,
    )


@dataclass
class FakeCodecarbon:
    """The two parts of codecarbon that are used, and its tracker, which must not be."""

    model: str = "Some CPU"
    tdp_w: float | None = 65.0
    ram_w: float = 10.0
    n_trackers: int = 0

    def install(self, patch: pytest.MonkeyPatch) -> FakeCodecarbon:
        import codecarbon
        import codecarbon.core.cpu
        import codecarbon.external.ram

        def tracker(*_: object, **__: object) -> None:
            self.n_trackers += 1

        power = SimpleNamespace(total_power=lambda: SimpleNamespace(W=self.ram_w))
        patch.setattr(codecarbon.core.cpu, "TDP", lambda: SimpleNamespace(model=self.model, tdp=self.tdp_w))
        patch.setattr(codecarbon.external.ram, "RAM", lambda tracking_mode: power)
        patch.setattr(codecarbon, "EmissionsTracker", tracker)
        patch.setattr(codecarbon, "OfflineEmissionsTracker", tracker)
        return self
