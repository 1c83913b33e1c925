"""How good the answers are, on the execution path that is timed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from effaudit.example_table import Spill
from effaudit.profile_spec import AuditSpec
from effaudit.record import Better, Findings, Measurement, unavailable
from effaudit.scoring import Scores, score
from effaudit.workload import IGNORED_LABEL, Batch, Output, Workload


def measure(works: Sequence[Workload], settings: AuditSpec) -> list[Findings]:
    """One pass a model: mean loss and accuracy over labelled examples, or over labelled tokens."""
    return [_measure_one(work) for work in works]


def _measure_one(work: Workload) -> Findings:
    spill = Spill(work.scratch)
    loss, n_right, n_asked, why = 0.0, 0, 0, ""
    for batch in work.batches():
        output = work.run(batch)
        why = why or output.no_quality
        scores = score(*_answered(output, batch))
        spill.add(batch.index.tolist(), _columns(batch, scores))
        loss += scores.loss[scores.n_asked > 0].sum().item()
        n_right += int(scores.n_right.sum())
        n_asked += int(scores.n_asked.sum())
    return Findings(measurements=_measurements(work, loss, n_right, n_asked, why), examples=spill)


def _answered(output: Output, batch: Batch) -> tuple[Tensor, Batch]:
    """The logits and what they answer: nothing is asked of an output that has no answer."""
    if not output.no_quality:
        return output.logits, batch
    labels = torch.full_like(batch.labels, IGNORED_LABEL)
    return output.logits.new_zeros(*labels.shape, 1), replace(batch, labels=labels)


def _columns(batch: Batch, scores: Scores) -> dict[str, list[float]]:
    """What the example table shows of a batch: means over what an example was asked, NaN where it was nothing."""
    labels = batch.labels if batch.labels.dim() == 1 else torch.full_like(scores.n_asked, IGNORED_LABEL)
    nothing = [math.nan] * batch.n_examples
    return {
        "label": torch.where(labels == IGNORED_LABEL, math.nan, labels.double()).tolist(),
        "correct": (scores.n_right.double() / scores.n_asked).tolist(),
        "loss": (scores.loss / scores.n_asked).tolist(),
        "n_asked": scores.n_asked.tolist(),
        "n_tokens": batch.mask.sum(dim=1).tolist() if batch.has_tokens else nothing,
        "difficulty": nothing if batch.difficulty is None else batch.difficulty.tolist(),
    }


def _measurements(work: Workload, loss: float, n_right: int, n_asked: int, why: str) -> tuple[Measurement, ...]:
    unit = "characters" if work.is_characters else "tokens" if work.task == "causal_lm" else "examples"
    mean = loss / n_asked if n_asked else math.nan
    no_loss = why or ("nothing is labelled" if not n_asked else "the loss is not finite")
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
