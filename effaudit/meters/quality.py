"""How good the answers are, on the execution path that is timed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch.nn.functional as F

from effaudit.profile_spec import AuditSpec
from effaudit.record import Better, ExampleRow, Findings, Measurement, unavailable
from effaudit.workload import IGNORED_LABEL, Batch, Workload


def measure(works: Sequence[Workload], settings: AuditSpec) -> list[Findings]:
    """One pass a model: mean loss and accuracy over labelled examples, or over labelled tokens."""
    return [_measure_one(work) for work in works]


def _measure_one(work: Workload) -> Findings:
    rows: list[ExampleRow] = []
    loss, n_right, n_asked = 0.0, 0.0, 0
    for batch in work.batches():
        for row, n in _rows(work, batch):
            rows.append(row)
            n_asked += n
            if n:
                loss += (row.loss if row.loss is not None else math.nan) * n
                n_right += (row.correct or 0.0) * n
    return Findings(measurements=_measurements(work, loss, n_right, n_asked), examples=tuple(rows))


def _rows(work: Workload, batch: Batch) -> list[tuple[ExampleRow, int]]:
    """Each example with how many answers it was asked for."""
    logits = work.run(batch).logits.float()
    labels = batch.labels if batch.labels.dim() == 2 else batch.labels[:, None]  # (B, T) or (B, 1)
    logits = logits.view(*labels.shape, logits.shape[-1])
    losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none", ignore_index=IGNORED_LABEL)
    asked = labels != IGNORED_LABEL
    n_asked = asked.sum(dim=1)
    mean_loss = (losses.view_as(labels).double().sum(dim=1) / n_asked).tolist()
    right = ((logits.argmax(dim=-1) == labels) & asked).sum(dim=1)
    correct = (right.double() / n_asked).tolist()
    difficulty = batch.difficulty.tolist() if batch.difficulty is not None else None
    n_tokens = batch.mask.sum(dim=1).tolist()
    rows = []
    for i, (index, n) in enumerate(zip(batch.index.tolist(), n_asked.tolist(), strict=True)):
        row = ExampleRow(
            index=index,
            label=int(batch.labels[i]) if batch.labels.dim() == 1 and n else None,
            correct=correct[i] if n else None,
            loss=mean_loss[i] if math.isfinite(mean_loss[i]) else None,
            n_tokens=n_tokens[i],
            difficulty=difficulty[i] if difficulty is not None else None,
        )
        rows.append((row, n))
    return rows


def _measurements(work: Workload, loss: float, n_right: float, n_asked: int) -> tuple[Measurement, ...]:
    unit = "characters" if work.is_characters else "tokens" if work.task == "causal_lm" else "examples"
    mean = loss / n_asked if n_asked else math.nan
    no_loss = "nothing is labelled" if not n_asked else "the loss is not finite"
    no_bits = no_loss if work.is_characters else "the tokens are not characters"
    bits = mean / math.log(2) if work.is_characters else math.nan
    found: list[tuple[str, str, Better, float, str]] = [
        ("loss", "nat", "lower", mean, no_loss),
        ("accuracy", "1", "higher", n_right / n_asked if n_asked else math.nan, no_loss),
    ]
    if work.task == "causal_lm":
        found.append(("bpc", "bit", "lower", bits, no_bits))
    return tuple(
        Measurement(
            name=f"quality.{name}",
            unit=symbol,
            better=better,
            source="measured",
            method=f"mean over {n_asked} {unit}, on the execution path that is timed",
            value=value,
        )
        if math.isfinite(value)
        else unavailable(f"quality.{name}", symbol, better, reason)
        for name, symbol, better, value, reason in found
    )
