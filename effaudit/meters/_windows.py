"""What the energy sources show while models run in turns, and while nothing runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from effaudit import device
from effaudit.meters import _turns
from effaudit.meters._instruments import Instruments
from effaudit.meters._sampling import Sample
from effaudit.workload import Workload

N_TURNS = 2  # the second in reverse order, so that a machine that warms up favours none
N_PARTS = 4  # readings within a turn, to show its spread
MODELLED_IDLE_S = 0.2  # a model has no ticks: its idle power shows at once

Clock = Callable[[], float]
Sleep = Callable[[float], None]


@dataclass(frozen=True)
class Reading:
    """Seconds, passes over the sample and J of each source between two moments."""

    seconds: float
    n_cycles: int
    joules: tuple[float, ...]


@dataclass(frozen=True)
class Window:
    """One model's turns: their parts in order of time, and what one cycle of the sample stands for."""

    parts: tuple[Reading, ...]
    sample: Sample
    places: tuple[int, ...]  # of its turns among all, 1-based
    n_places: int

    @property
    def seconds(self) -> float:
        return sum(part.seconds for part in self.parts)

    @property
    def n_cycles(self) -> int:
        return sum(part.n_cycles for part in self.parts)

    @property
    def n_passes(self) -> float:
        """Passes over the whole workload that the window stands for."""
        return self.n_cycles / self.sample.scale

    @property
    def pass_s(self) -> float:
        return self.seconds / self.n_passes


def idle(tools: Instruments, wanted_s: float, clock: Clock, sleep: Sleep) -> tuple[Reading, ...]:
    """What the machine draws while this process sleeps, in parts."""
    is_all_modelled = all(source.is_modelled for source in tools.sources)
    seconds = MODELLED_IDLE_S if is_all_modelled else tools.window_s(wanted_s)
    parts = []
    for _ in range(N_PARTS):
        start, before = clock(), tools.read()
        sleep(seconds / N_PARTS)
        parts.append(_since(start, before, 0, tools, clock))
    return tuple(parts)


def run_turns(
    works: Sequence[Workload], samples: Sequence[Sample], tools: Instruments, wanted_s: float, clock: Clock
) -> list[Window]:
    """N_TURNS turns of each model, the order drawn at random for the first and reversed for the next.

    Together the turns last `wanted_s`, each at least as long as the counters need; a model of which a
    single cycle takes longer than that has one turn.
    """
    turn_s, whole_s = tools.window_s(wanted_s / N_TURNS), tools.window_s(wanted_s)
    fitted = [_fit(work, sample, turn_s, clock) for work, sample in zip(works, samples, strict=True)]
    order = list(range(len(works)))
    random.Random().shuffle(order)  # own generator: the audit's random state stays as it was
    parts: list[list[Reading]] = [[] for _ in works]
    places: list[list[int]] = [[] for _ in works]
    place = 0
    for turn in range(N_TURNS):
        for i in order if turn % 2 == 0 else order[::-1]:
            if [part.n_cycles for part in parts[i]] == [1] and parts[i][0].seconds >= whole_s:
                continue
            place += 1
            places[i].append(place)
            parts[i] += _run_turn(works[i], fitted[i], turn_s, tools, clock)
    return [
        Window(tuple(found), sample, tuple(at), place) for found, sample, at in zip(parts, fitted, places, strict=True)
    ]


def _since(start: float, before: list[float], n_cycles: int, tools: Instruments, clock: Clock) -> Reading:
    joules = tuple(now - then for now, then in zip(tools.read(), before, strict=True))
    return Reading(clock() - start, n_cycles, joules)


def _fit(work: Workload, sample: Sample, seconds: float, clock: Clock) -> Sample:
    """As much of the sample as fits into one turn, warmed up."""
    if _turns.timed(work, sample.batches[0], clock) >= seconds:
        return sample.thinned(1)
    batch_s = _turns.timed(work, sample.batches[0], clock)
    fitted = sample.thinned(int(seconds / batch_s) if batch_s > 0 else len(sample.batches))
    _run_cycle(work, fitted)
    return fitted


def _run_cycle(work: Workload, sample: Sample) -> None:
    for batch in sample.batches:
        work.run(batch)
    device.synchronize(work.device)


def _run_turn(work: Workload, sample: Sample, seconds: float, tools: Instruments, clock: Clock) -> list[Reading]:
    """Whole cycles until the turn is full, read after each quarter: no part is shorter, or its counter may not tick."""
    parts: list[Reading] = []
    begin = start = clock()
    before, n_cycles = tools.read(), 0
    while True:
        _run_cycle(work, sample)
        n_cycles += 1
        now = clock()
        if now - start >= seconds / N_PARTS:
            parts.append(_since(start, before, n_cycles, tools, clock))
            if now - begin >= seconds or len(parts) == N_PARTS:
                return parts
            start, before, n_cycles = clock(), tools.read(), 0
