"""From which share of work on skipping pays on this machine: the costs behind `execution: auto`, measured once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from itertools import islice

import torch
from torch import nn

from effaudit import device
from effaudit.variants._policy import Policy, cost_of
from effaudit.workload import Batch, Workload

ROUNDS = 7
LOOKED_AT = 64  # batches, for their sizes

Clock = Callable[[], float]


def calibrate(work: Workload, clock: Clock = time.perf_counter) -> None:
    """Measures one layer of a model that runs under `execution: auto`, on each size of batch that it will meet."""
    if getattr(work.model, "policy", None) is not None:
        for batch in islice(work.batches(), 1):
            work.run(batch)  # what libraries set up once; the model is warm from here on
        calibrate_on(work.model, islice(work.batches(), LOOKED_AT), clock)


def calibrate_on(model: nn.Module, batches: Iterable[Batch], clock: Clock = time.perf_counter) -> None:
    """The same on given batches; each size is timed in turns on random decisions, and the fastest of ROUNDS counts:
    what disturbs only adds."""
    policy = getattr(model, "policy", None)
    if not isinstance(policy, Policy) or policy.costs:
        return
    for batch in _by_size(batches, policy):
        with torch.inference_mode():
            trials = model.trials(batch)  # type: ignore[operator]
            if not trials:
                return
            seconds = [[_timed(trial.run, batch, clock) for trial in trials] for _ in range(ROUNDS)]
        best = [min(column) for column in zip(*seconds, strict=True)]
        policy.costs[policy.size(batch.n_positions)] = cost_of(trials, best)


def _by_size(batches: Iterable[Batch], policy: Policy) -> list[Batch]:
    """The first batch of each size."""
    found: dict[int, Batch] = {}
    for batch in batches:
        found.setdefault(policy.size(batch.n_positions), batch)
    return list(found.values())


def _timed(run: Callable[[], object], batch: Batch, clock: Clock) -> float:
    device.synchronize(batch.tokens.device)
    start = clock()
    run()
    device.synchronize(batch.tokens.device)
    return clock() - start
