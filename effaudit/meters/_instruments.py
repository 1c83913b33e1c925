"""Which energy sources together cover the device that a model runs on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch

from effaudit.meters import _codecarbon, _nvml, _rapl
from effaudit.meters._sources import Part, Source
from effaudit.record import Caution

MIN_TICKS = 20  # of the slowest counter in a window: the first and the last may be cut, so 5 % at most


@dataclass(frozen=True)
class Instruments:
    """What reads energy for one device; without sources, `reason` says why."""

    sources: tuple[Source, ...]
    reason: str = ""
    cautions: tuple[Caution, ...] = ()

    @property
    def is_modelled(self) -> bool:
        return any(source.is_modelled for source in self.sources)

    def of(self, part: Part) -> tuple[int, ...]:
        """Where in `sources` those of one part are."""
        return tuple(i for i, source in enumerate(self.sources) if source.part == part)

    def window_s(self, wanted_s: float) -> float:
        """The window asked for, or MIN_TICKS of the slowest counter where that is longer."""
        return max([wanted_s, *(MIN_TICKS * source.tick_s for source in self.sources)])

    @contextmanager
    def running(self) -> Iterator[None]:
        """Keeps going what has to be sampled between readings."""
        with ExitStack() as stack:
            for source in self.sources:
                if isinstance(source, _nvml.Power):
                    stack.enter_context(source.sampling())
            yield

    def read(self) -> list[float]:
        """J of each source.

        Raises UnreadableError when a counter fails.
        """
        try:
            return [source.read() for source in self.sources]
        except (OSError, ValueError) as error:
            raise UnreadableError(f"an energy counter failed while in use: {error}") from error


class UnreadableError(Exception):
    """A counter that was there can no longer be read."""


def find_instruments(device: torch.device, clock: Callable[[], float] = time.perf_counter) -> Instruments:
    """Per domain: NVML counter, RAPL counters, else codecarbon's model of CPU and RAM."""
    sources: tuple[Source, ...] = ()
    cautions: tuple[Caution, ...] = ()
    if device.type == "cuda":
        gpu = _nvml.find_counter(device, clock=clock)
        if not gpu.found:  # a sum without the part that works would mislead
            return Instruments((), f"{gpu.reason}; {gpu.hint}" if gpu.hint else gpu.reason)
        sources, cautions = gpu.found, gpu.cautions
    elif device.type != "cpu":
        return Instruments((), f"no energy counter of a {device.type} device can be read without administrator rights")
    cpu = _rapl.find_counters()
    if cpu.found:
        return Instruments((*sources, *cpu.found), cautions=(*cautions, *cpu.cautions))
    model = _codecarbon.find_model(clock)
    if not model.found:
        return Instruments((), f"{cpu.reason}; {model.reason}")
    text = f"{cpu.reason}: the energy of CPU and RAM is modelled by codecarbon and follows CPU time and time"
    hint = cpu.hint or "a machine with readable RAPL counters measures it"
    modelled = Caution(code="modelled", text=text, hint=hint)
    return Instruments((*sources, *model.found), cautions=(*cautions, modelled, *model.cautions))
