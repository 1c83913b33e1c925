"""How many tokens per pass through the layers are quickest for a model on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from effaudit.variants._blocks import Backbone
from effaudit.workload import Batch, Routing

CANDIDATES = (512, 1024, 2048, 4096)  # tokens: what 0.5 to 4 MiB of cache hold at usual widths
WORTH_IT = 0.98  # passes must be this much quicker than the whole batch: below, the choice would be noise's
ROUNDS, MAX_S = 7, 5.0

Clock = Callable[[], float]


@dataclass(frozen=True)
class _Trial:
    tokens_per_pass: int | None
    seconds: list[float]


def choose_micro_batch(
    model: nn.Module, batch: Batch, routing: Routing | None = None, clock: Clock = time.perf_counter
) -> None:
    """Sets `tokens_per_pass` of a model whose option says `auto`, by runs in turns on a batch like those to come.

    Elsewhere than on a CPU a batch stays whole: smaller ones would leave an accelerator idle.
    """
    if not isinstance(model, Backbone) or model.config.options.get("micro_batch", "auto") != "auto":
        return
    if batch.tokens.device.type != "cpu":
        return
    n_tokens = batch.tokens.shape[1]
    sizes = [size for size in CANDIDATES if max(size // n_tokens, 1) < batch.n_examples]
    trials = [_Trial(size, []) for size in (None, *sizes)]
    with torch.inference_mode():
        _run_in_turns(model, batch, routing, trials, clock)
    best = min(trials, key=lambda trial: min(trial.seconds))
    is_worth_it = min(best.seconds) <= WORTH_IT * min(trials[0].seconds)
    model.tokens_per_pass = best.tokens_per_pass if is_worth_it else None


def _run_in_turns(model: Backbone, batch: Batch, routing: Routing | None, trials: list[_Trial], clock: Clock) -> None:
    model(batch, routing)  # what libraries set up once
    begin = clock()
    for _ in range(ROUNDS):
        for trial in trials:
            model.tokens_per_pass = trial.tokens_per_pass
            start = clock()
            model(batch, routing)
            trial.seconds.append(clock() - start)
        if clock() - begin > MAX_S:
            return
