"""How models take turns at being timed, warmed up first and waited for each time.

Samples are seconds per batch, round by round and in the order of the batches within a round, so those
of models that were timed together pair by index: same batch, same round, moments apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from effaudit import device, stats
from effaudit.meters import _sampling
from effaudit.meters._sampling import Sample
from effaudit.profile_spec import AuditSpec
from effaudit.workload import Batch, Workload

STEADY = 0.05  # a run that is not this much faster than the best before it brings no more warmth
STEADY_RUNS = 2  # so many of them in a row end the warm-up of a shape
MAX_WARMUP_RUNS = 20  # of one shape: a model that never settles is timed as it is
WARMUP_SHARE = 0.25  # of the time for the rounds, at most; every shape runs once even so
MIN_ROUNDS = 2  # one in each order of the models, whatever the time allowed
TIGHT = 0.01  # half width of the median at which more rounds tell nothing more
MAX_SAMPLES = 1000  # per model: keeps records small

Clock = Callable[[], float]


@dataclass
class Turn:
    """One model's part in the rounds."""

    work: Workload
    sample: Sample
    first_s: float
    times: list[float] = field(default_factory=list)

    @property
    def noise(self) -> NDArray[np.float64]:
        """Each sample over the median of its batch, so that batches of unlike size do not look like noise."""
        rounds: NDArray[np.float64] = np.asarray(self.times).reshape(-1, len(self.sample.batches))
        middle = np.median(rounds, axis=0)
        return np.divide(rounds, middle, out=np.ones_like(rounds), where=middle > 0).ravel()


def first_turns(works: Sequence[Workload], samples: Sequence[Sample], clock: Clock) -> list[Turn]:
    """The first batch of each, timed as it comes."""
    return [
        Turn(work, sample, timed(work, sample.batches[0], clock)) for work, sample in zip(works, samples, strict=True)
    ]


def timed(work: Workload, batch: Batch, clock: Clock) -> float:
    """Seconds from an idle device to an idle device.

    Wall time also where the device has events of its own: what the host does to route is part of a batch's time.
    """
    device.synchronize(work.device)
    start = clock()
    work.run(batch)
    device.synchronize(work.device)
    return clock() - start


def warm_up(turns: list[Turn], settings: AuditSpec, clock: Clock) -> None:
    """Runs each distinct shape until it gets no faster, and thins the samples so that the rounds fit their time.

    The samples of all are thinned alike, by what one batch of each takes once warm.
    """
    limit_s = WARMUP_SHARE * settings.max_seconds / len(turns)
    per_batch = sum(_steady(turn.work, turn.sample.batches[0], limit_s, clock) for turn in turns)
    n = int(settings.max_seconds / (settings.rounds * per_batch)) if per_batch > 0 else _sampling.MAX_BATCHES
    for turn in turns:
        warm = turn.sample.batches[0].shape
        turn.sample = turn.sample.thinned(n)
        shapes = {b.shape: b for b in reversed(turn.sample.batches) if b.shape != warm}
        for batch in shapes.values():
            _steady(turn.work, batch, limit_s / len(shapes), clock)


def _steady(work: Workload, batch: Batch, limit_s: float, clock: Clock) -> float:
    """Runs until STEADY_RUNS in a row were no faster than before, or `limit_s` are used up; the fastest, in seconds."""
    best, n_steady, spent = float("inf"), 0, 0.0
    for _ in range(MAX_WARMUP_RUNS):
        taken = timed(work, batch, clock)
        spent += taken
        n_steady = n_steady + 1 if taken > (1 - STEADY) * best else 0
        best = min(best, taken)
        if n_steady == STEADY_RUNS or spent >= limit_s:
            break
    return best


def run_rounds(turns: list[Turn], settings: AuditSpec, clock: Clock) -> int:
    """Rounds until the medians are sure or the time is used up; returns how many.

    Once the time is used up there are no more, even if fewer than asked for, but MIN_ROUNDS.
    """
    start, n_rounds, next_check = clock(), 0, settings.rounds
    while True:
        _run_round(turns, clock)
        n_rounds += 1
        most = max(len(turn.times) for turn in turns)
        is_over = clock() - start >= settings.max_seconds or most >= MAX_SAMPLES
        if is_over and n_rounds >= MIN_ROUNDS:
            return n_rounds
        if n_rounds >= next_check:  # checked ever more rarely: a check costs more than a small model's round
            if all(_is_sure(turn) for turn in turns):
                return n_rounds
            next_check = 1 + n_rounds * 5 // 4


def _run_round(turns: list[Turn], clock: Clock) -> None:
    """Every batch once for every model; the order turns at each batch and, for one batch, at each round."""
    forward = len(turns[0].times) // len(turns[0].sample.batches) % 2 == 0
    for b in range(max(len(turn.sample.batches) for turn in turns)):
        for turn in turns if forward else reversed(turns):
            if b < len(turn.sample.batches):
                turn.times.append(timed(turn.work, turn.sample.batches[b], clock))
        forward = not forward


def _is_sure(turn: Turn) -> bool:
    """Whether the median is known to TIGHT and there are samples enough for p99."""
    interval = stats.median_interval([float(x) for x in turn.noise])
    return len(turn.times) >= stats.needed_for(99) and interval is not None and interval.half_width < TIGHT
