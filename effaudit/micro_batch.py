"""How many tokens per pass through the layers are quickest for a model on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch
from torch import nn

from effaudit.variants._blocks import Backbone
from effaudit.workload import Batch, Routing

CANDIDATES = (512, 1024, 2048, 4096)  # tokens: what 0.5 to 4 MiB of cache hold at usual widths
WORTH_IT = 0.98  # passes must be this much quicker than the whole batch: below, the choice would be noise's
ROUNDS, MIN_ROUNDS, MAX_S = 9, 3, 5.0

Clock = Callable[[], float]


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

    def run(tokens_per_pass: int | None) -> object:
        model.tokens_per_pass = tokens_per_pass
        return model(batch, routing)

    model.tokens_per_pass = quickest(run, batch.n_examples, batch.tokens.shape[1], clock)


@torch.inference_mode()
def quickest(
    run: Callable[[int | None], object], n_examples: int, n_tokens: int, clock: Clock = time.perf_counter
) -> int | None:
    """With how many tokens per pass `run` is quickest on examples of `n_tokens`; None for a batch as a whole."""
    sizes = [size for size in CANDIDATES if max(size // n_tokens, 1) < n_examples]
    seconds: dict[int | None, list[float]] = {size: [] for size in (None, *sizes)}
    run(None)  # what libraries set up once
    begin = clock()
    for n_rounds in range(1, ROUNDS + 1):
        for size, taken in seconds.items():
            start = clock()
            run(size)
            taken.append(clock() - start)
        if n_rounds >= MIN_ROUNDS and clock() - begin > MAX_S:
            break
    # Within a round, as a machine that changes its pace does so for minutes.
    whole = [max(taken, 1e-9) for taken in seconds[None]]
    ratios = {size: median(a / b for a, b in zip(taken, whole, strict=True)) for size, taken in seconds.items()}
    best = min(ratios, key=lambda size: ratios[size])
    return best if ratios[best] <= WORTH_IT else None
