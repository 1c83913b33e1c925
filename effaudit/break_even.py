"""From which share of work on skipping pays on this machine: the costs behind `execution: auto`, measured once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from itertools import islice

import torch

from effaudit.variants._policy import Policy, cost_of
from effaudit.workload import Batch, Workload

ROUNDS = 7
LOOKED_AT = 64  # batches, for their sizes

Clock = Callable[[], float]


def calibrate(work: Workload, clock: Clock = time.perf_counter) -> None:
    """Measures one layer of a model that runs under `execution: auto`, on each size of batch that it will meet.

    Each size is timed in turns on random decisions, and the fastest of ROUNDS counts: what disturbs only adds.
    """
    policy = getattr(work.model, "policy", None)
    if not isinstance(policy, Policy) or policy.costs:
        return
    for batch in _by_size(work.batches(), policy):
        work.run(batch)  # what libraries set up once; the model is warm from here on
        with torch.inference_mode():
            trials = work.model.trials(batch)  # type: ignore[operator]
            if not trials:
                return
            seconds = [[_timed(trial.run, clock) for trial in trials] for _ in range(ROUNDS)]
        best = [min(column) for column in zip(*seconds, strict=True)]
        policy.costs[policy.size(batch.n_positions)] = cost_of(trials, best)


def _by_size(batches: Iterable[Batch], policy: Policy) -> list[Batch]:
    """The first batch of each size."""
    found: dict[int, Batch] = {}
    for batch in islice(batches, LOOKED_AT):
        found.setdefault(policy.size(batch.n_positions), batch)
    return list(found.values())


def _timed(run: Callable[[], object], clock: Clock) -> float:
    start = clock()
    run()
    return clock() - start
