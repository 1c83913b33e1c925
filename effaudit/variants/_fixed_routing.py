"""Random decisions that are drawn once and never change: what a model trained under them is a control for.

They depend on the size and the rate alone, so that training and audit agree without a trace in the weights.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from effaudit.profile_spec import ModelConfig, Real
from effaudit.variants._blocks import VariantOptions

SEED = 2026
STRETCH = 16  # positions among which the rate is kept to, so that short texts keep it too
N_UNITS = 4096  # exits that are drawn before they repeat


class RoutedOptions(VariantOptions):
    """`random_fixed` trains and runs under random decisions that keep `keep_rate` of what could be skipped."""

    routing: Literal["learned", "random_fixed"] = "learned"
    keep_rate: Annotated[Real, Field(ge=0, le=1)] = 0.5

    @property
    def is_random(self) -> bool:
        return self.routing == "random_fixed"


def _drawn(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(SEED), dtype=torch.float64)


def kept_positions(config: ModelConfig, keep_rate: float) -> Tensor:
    """(T, L) bool, whether a block keeps the token at a position; the first block keeps all."""
    n_stretches = -(-config.max_tokens // STRETCH)
    ranks = _drawn(n_stretches, STRETCH, config.n_layers).argsort(dim=1).argsort(dim=1)
    kept = ((ranks + 0.5) / STRETCH < keep_rate).flatten(0, 1)[: config.max_tokens]
    kept[:, 0] = True
    return kept


def kept_heads(config: ModelConfig, keep_rate: float) -> Tensor:
    """(L, H) bool, as many heads as the rate says over all layers, at least one in each."""
    drawn = _drawn(config.n_layers, config.n_heads)
    drawn[torch.arange(config.n_layers), drawn.argmin(dim=1)] = -1.0
    n_kept = max(round(keep_rate * drawn.numel()), config.n_layers)
    kept = torch.zeros(drawn.numel(), dtype=torch.bool)
    kept[drawn.flatten().argsort()[:n_kept]] = True
    return kept.view_as(drawn)


def exit_layers(config: ModelConfig, keep_rate: float) -> Tensor:
    """(N_UNITS,) layers run, 1-based; the mean share of the blocks after the first that run is the rate.

    Each block but the first is run by the same share of those that reach it.
    """
    stays = _stay_rate(keep_rate, config.n_layers - 1)
    runs = _drawn(N_UNITS, config.n_layers - 1) < stays
    return 1 + runs.long().cumprod(dim=1).sum(dim=1)


def _stay_rate(keep_rate: float, n_blocks: int) -> float:
    """The c for which the mean of c, c², … over the blocks is the rate."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        is_low = sum(middle**i for i in range(1, n_blocks + 1)) < keep_rate * n_blocks
        low, high = (middle, high) if is_low else (low, middle)
    return high
