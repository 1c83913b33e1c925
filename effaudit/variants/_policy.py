"""When leaving work out pays: what a layer costs either way, as a function of how much of it runs.

Gathering, scattering and splitting cost time of their own, so that a layer which leaves little out is quicker when it
computes everything and multiplies the rest away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from effaudit.workload import Batch


@dataclass(frozen=True)
class Cost:
    """Seconds of one layer on batches of one size: skipping is linear in the share that runs and in the number of
    head sets an example, whose matrices are laid out anew where no kernel takes them as they are."""

    fixed: float
    per_share: float
    per_set: float
    masked: float

    def is_skipping(self, share: float, n_sets: float) -> bool:
        return self.fixed + self.per_share * share + self.per_set * n_sets < self.masked


@dataclass(frozen=True)
class Trial:
    """One layer run in one of the two ways, to be timed; `share` and `n_sets` of what runs where it skips."""

    run: Callable[[], object]
    share: float = 1.0
    n_sets: float = 0.0  # an example
    is_masked: bool = False


def cost_of(trials: Sequence[Trial], seconds: Sequence[float]) -> Cost:
    """The costs that timed trials tell: one masked, two or more that skip; by least squares."""
    masked = min(s for trial, s in zip(trials, seconds, strict=True) if trial.is_masked)
    skipping = [(trial, s) for trial, s in zip(trials, seconds, strict=True) if not trial.is_masked]
    known = torch.tensor([[1.0, trial.share, trial.n_sets] for trial, _ in skipping], dtype=torch.float64)
    taken = torch.tensor([[s] for _, s in skipping], dtype=torch.float64)
    # gelsd is the driver that takes fewer trials than terms: without head sets their column is zero
    fixed, per_share, per_set = torch.linalg.lstsq(known, taken, driver="gelsd").solution.flatten().tolist()
    return Cost(fixed, per_share, per_set, masked)


class Policy:
    """The costs by size of batch, and what they say; skips where no costs are known."""

    def __init__(self) -> None:
        self.costs: dict[int, Cost] = {}

    @staticmethod
    def size(n_positions: int) -> int:
        """The class of batches up to a power of two of tokens."""
        return (n_positions - 1).bit_length()

    def is_skipping(self, n_positions: int, share: float, n_sets: float = 0.0) -> bool:
        if not self.costs:
            return True
        own = self.size(n_positions)
        nearest = min(self.costs, key=lambda size: (abs(size - own), size))
        return self.costs[nearest].is_skipping(share, n_sets)


def flags(batch: Batch, is_masked: Sequence[bool]) -> Tensor:
    """(B, L) bool, layer by layer whether a pass ran it in its masked form."""
    told = torch.tensor(is_masked, device=batch.tokens.device)
    return told.expand(batch.n_examples, -1)


def random_share(like: Tensor, share: float) -> Tensor:
    """Flags of the shape of `like`, True in `share` of the places, the same at every call."""
    source = torch.Generator().manual_seed(0)
    return (torch.rand(like.shape, generator=source) < share).to(like.device)
