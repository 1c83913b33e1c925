"""One session: a fresh process a side, timed in turns, as log ratios of the second's times to the first's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from math import log

import numpy as np

from effaudit.against.cpus import QuietestCpu
from effaudit.against.processes import Side, TimedModel, Turn, Worker, started
from effaudit.errors import EffauditError

TURN_S = 0.04  # of runs: short, so that a round is over before the machine changes
MIN_RUNS, MAX_RUNS = 1, 30  # of a turn
TIMED_SHARE = 2.0  # of the time that starting took: what rounds vary by and what processes do then weigh alike
MIN_ROUNDS = 6  # of a model, for a session to count
PATIENCE = 20.0  # times what a turn should take, after which a process is given up
PATIENCE_S = 30.0  # beside that
PRECISE = 0.1  # share of the tolerance: a session that is this sure needs no more rounds
IQR_OF_NORMAL = 1.349  # in standard deviations

Clock = Callable[[], float]


@dataclass
class Rounds:
    """What a session found about one model."""

    log_ratios: list[float] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)  # medians of turns
    second_s: list[float] = field(default_factory=list)
    n_runs: int = 0
    n_interrupted: int = 0

    def add(self, first: Turn, second: Turn) -> None:
        """A round; runs that waited for a CPU are left out, whatever they took."""
        for turn in (first, second):
            self.n_runs += len(turn.seconds)
            self.n_interrupted += len(turn.seconds) - len(turn.clean)
        if first.clean and second.clean:
            self.first_s.append(float(np.median(first.clean)))
            self.second_s.append(float(np.median(second.clean)))
            self.log_ratios.append(log(self.second_s[-1] / self.first_s[-1]))

    @property
    def log_ratio(self) -> float | None:
        """The median round; None for fewer than MIN_ROUNDS that nothing interrupted."""
        return float(np.median(self.log_ratios)) if len(self.log_ratios) >= MIN_ROUNDS else None

    @property
    def noise(self) -> float:
        """The standard deviation of a round, by the interquartile range."""
        low, high = np.percentile(self.log_ratios, [25, 75]) if self.log_ratios else (0.0, 0.0)
        return float(high - low) / IQR_OF_NORMAL

    def is_precise(self, half_width: float) -> bool:
        """Whether two standard errors of the median, each 1.25 of the mean's, are within `half_width`."""
        n = len(self.log_ratios)
        return n >= MIN_ROUNDS and 2 * 1.25 * self.noise / n**0.5 <= half_width


@dataclass(frozen=True)
class Session:
    """What two processes said about their models, and the rounds of those that both have."""

    first: tuple[TimedModel, ...]
    second: tuple[TimedModel, ...]
    rounds: dict[str, Rounds]
    seconds: float

    @property
    def interrupted(self) -> float:
        """The share of runs that waited for a CPU."""
        n = sum(rounds.n_runs for rounds in self.rounds.values())
        return sum(rounds.n_interrupted for rounds in self.rounds.values()) / n if n else 0.0


@dataclass(frozen=True)
class _Pair:
    """A model on both sides: its places there, how many batches it has, how often each is run in a turn."""

    name: str
    places: tuple[int, int]
    n_batches: int
    n_runs: int
    run_s: float


@dataclass
class Timing:
    """How sessions are timed: until when at most, and how sure each shall be."""

    deadline: float  # by `clock`
    tolerance: float
    clock: Clock = time.monotonic
    cpus: QuietestCpu = field(default_factory=QuietestCpu)

    @property
    def left_s(self) -> float:
        return self.deadline - self.clock()

    def session(self, first: Side, second: Side, index: int, without: frozenset[str] = frozenset()) -> Session:
        """Rounds for TIMED_SHARE of what starting took, or until all models are precise; those in `without` rest.

        Whose process starts first, and whose turn is first, changes with `index` and from round to round.
        Raises EffauditError when a side does not run or they run different work, TimeoutError at the deadline.
        """
        begin = self.clock()
        with _both(first, second, index) as workers:
            models = [worker.models(max(1.0, self.left_s)) for worker in workers]
            pairs = [pair for pair in _pairs(*models) if pair.name not in without]
            rounds = {pair.name: Rounds() for pair in pairs}
            started_at = self.clock()
            stop = min(self.deadline, started_at + TIMED_SHARE * (started_at - begin))
            is_pinned = all(model.is_one_thread for model in models[1])
            for n in count():
                waiting = [p for p in pairs if not rounds[p.name].is_precise(PRECISE * self.tolerance)]
                if not waiting or self.left_s <= 0 or (n >= MIN_ROUNDS and self.clock() >= stop):
                    break
                cpu = self.cpus.choose() if is_pinned else None
                for pair in waiting:
                    rounds[pair.name].add(*self._round(workers, pair, n + index, cpu))
            return Session(models[0], models[1], rounds, self.clock() - begin)

    def _round(self, workers: list[Worker], pair: _Pair, n: int, cpu: int | None) -> list[Turn]:
        """One batch on both sides, the order turned each time; every batch comes in both orders."""
        turns: list[Turn | None] = [None, None]
        limit_s = PATIENCE_S + PATIENCE * pair.run_s * pair.n_runs
        for side in (0, 1) if n % 2 == 0 else (1, 0):
            batch = n // 2 % pair.n_batches
            turn = workers[side].turn(pair.places[side], batch, pair.n_runs, cpu, limit_s)
            self.cpus.used(sum(turn.seconds))
            turns[side] = turn
        return [turn for turn in turns if turn is not None]


@contextmanager
def _both(first: Side, second: Side, index: int) -> Iterator[list[Worker]]:
    """The processes of both sides, in that order; every other time the second starts first."""
    if index % 2:
        with started([second, first]) as workers:
            yield workers[::-1]
    else:
        with started([first, second]) as workers:
            yield workers


def _pairs(first: tuple[TimedModel, ...], second: tuple[TimedModel, ...]) -> list[_Pair]:
    """The models that both sides have.

    Raises EffauditError where they have different batches.
    """
    places = {model.name: i for i, model in enumerate(first)}
    pairs = []
    for i, model in enumerate(second):
        if model.name not in places:
            continue
        other = first[places[model.name]]
        if other.batches != model.batches:
            hint = "time tells nothing between revisions that read other data or batch it otherwise"
            raise EffauditError(f"both revisions have `{model.name}`, but not on the same batches", hint)
        run_s = max(other.run_s, model.run_s)
        n_runs = max(MIN_RUNS, min(MAX_RUNS, round(TURN_S / run_s)))
        pairs.append(_Pair(model.name, (places[model.name], i), len(model.batches), n_runs, run_s))
    return pairs
