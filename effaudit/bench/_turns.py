"""How long things take against a reference, all of them in turns."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from effaudit import stats

Clock = Callable[[], float]

MIN_ROUNDS = 12  # before an interval is believed
SURE = 0.005  # half width of a time ratio at which more rounds tell nothing more


@dataclass(frozen=True)
class Timing:
    """When to stop, and by which clock: the wall's, or on a busy machine the thread's own CPU time."""

    max_rounds: int
    max_s: float
    clock: Clock = time.perf_counter


def in_turns(runs: Sequence[Callable[[], object]], timing: Timing) -> list[list[float]]:
    """Seconds of each run, round by round, until every ratio to the first is sure or the limits are reached.

    Each round goes the other way round, so that drift hits all alike. Before each timed run goes an untimed one: none
    is timed on the caches that another left.
    """
    times: list[list[float]] = [[] for _ in runs]
    for run in runs:
        run()
    gc.collect()
    gc.disable()
    try:
        begin = time.perf_counter()
        for n_rounds in range(1, timing.max_rounds + 1):
            order = range(len(runs)) if n_rounds % 2 else reversed(range(len(runs)))
            for i in order:
                runs[i]()
                start = timing.clock()
                runs[i]()
                times[i].append(timing.clock() - start)
            is_checked = n_rounds >= MIN_ROUNDS and n_rounds % 4 == 0
            if time.perf_counter() - begin > timing.max_s or (is_checked and _are_sure(times)):
                break
    finally:
        gc.enable()
    return times


def _are_sure(times: list[list[float]]) -> bool:
    intervals = [stats.ratio_interval(times[0], each) for each in times[1:]]
    return all(interval is not None and interval.half_width <= SURE for interval in intervals)
