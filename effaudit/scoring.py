"""How good a batch's answers are, example by example."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from effaudit.workload import IGNORED_LABEL, Batch


@dataclass(frozen=True)
class Scores:
    """Sums over the answers that each example was asked for: one for a labelled text, one for each labelled token."""

    n_asked: Tensor  # (B,) int64
    n_right: Tensor  # (B,) int64
    loss: Tensor  # (B,) float64, nats


def score(logits: Tensor, batch: Batch) -> Scores:
    """`logits` are (B, C) or (B, T, V), as the batch's labels are (B,) or (B, T)."""
    labels = _labels(batch)
    asked = labels != IGNORED_LABEL
    found = logits.reshape(*labels.shape, logits.shape[-1]).float()
    return Scores(
        n_asked=asked.sum(dim=1),
        n_right=((found.argmax(dim=-1) == labels) & asked).sum(dim=1),
        loss=answer_losses(logits, batch).sum(dim=1),
    )


def answer_losses(logits: Tensor, batch: Batch) -> Tensor:
    """(B, T) or (B, 1) float64 nats, 0 where nothing is asked."""
    labels = _labels(batch)
    found = logits.reshape(labels.numel(), logits.shape[-1]).float()
    losses = F.cross_entropy(found, labels.flatten(), reduction="none", ignore_index=IGNORED_LABEL)
    return losses.view_as(labels).double()


def _labels(batch: Batch) -> Tensor:
    """(B, T) or (B, 1)."""
    return batch.labels if batch.labels.dim() == 2 else batch.labels[:, None]
