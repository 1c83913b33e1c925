"""The quality meter against hand-made logits."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from effaudit.meters import quality
from effaudit.profile_spec import AuditSpec
from effaudit.record import Findings
from effaudit.workload import IGNORED_LABEL, Batch, Output, Routing, Task, Workload
from tests import makers


class Fixed(nn.Module):
    """Gives the logits it was made with, batch by batch."""

    def __init__(self, *logits: Tensor) -> None:
        super().__init__()
        self.logits = list(logits)

    def forward(self, batch: Batch, routing: Routing | None = None) -> Output:
        return Output(self.logits[int(batch.index[0])], Routing())


def _batch(index: list[int], labels: Tensor, difficulty: Tensor | None = None, n_tokens: int = 3) -> Batch:
    mask = torch.ones(len(index), n_tokens, dtype=torch.bool)
    mask[-1, -1] = False
    return Batch(mask.long(), mask, labels, torch.tensor(index), is_padded=True, difficulty=difficulty)


def _measure(task: Task, model: nn.Module, *batches: Batch, is_characters: bool = False) -> Findings:
    work = Workload(
        name="fixed",
        model=model,
        task=task,
        n_layers=1,
        device=torch.device("cpu"),
        execution="skip",
        is_skipping_tokens=False,
        is_characters=is_characters,
        batches=lambda: iter(batches),
        flops=lambda batch, routing, execution: torch.zeros(batch.n_examples, dtype=torch.int64),
    )
    (found,) = quality.measure([work], AuditSpec())
    return found


def _logits(*rows: tuple[float, ...]) -> Tensor:
    """Log-probabilities, so that losses can be read off."""
    return torch.tensor(rows).log()


def test_classification() -> None:
    model = Fixed(_logits((0.8, 0.2), (0.4, 0.6)), torch.empty(0), _logits((0.5, 0.5)))
    batches = (
        _batch([0, 1], torch.tensor([0, 0]), difficulty=torch.tensor([1.0, 4.0])),
        _batch([2], torch.tensor([1])),
    )
    found = _measure("classification", model, *batches)
    losses = [-math.log(p) for p in (0.8, 0.4, 0.5)]
    values = {m.name: m.value for m in found.measurements}
    assert values == {
        "quality.loss": pytest.approx(sum(losses) / 3),
        "quality.accuracy": pytest.approx(1 / 3),  # the tie goes to the first class
    }
    assert {m.method for m in found.measurements} == {"mean over 3 examples, on the execution path that is timed"}
    table = makers.columns(found)
    assert table.pop("loss") == pytest.approx(losses)
    assert table == {
        "index": [0, 1, 2],
        "label": [0, 0, 1],
        "correct": [1, 0, 0],
        "n_asked": [1, 1, 1],
        "n_tokens": [3, 2, 2],
        "difficulty": [1, 4, None],
    }


def test_language_is_weighed_by_asked_tokens() -> None:
    logits = torch.stack([_logits((0.9, 0.1), (0.5, 0.5), (0.25, 0.75)), _logits((0.2, 0.8), (0.6, 0.4), (0.5, 0.5))])
    labels = torch.tensor([[0, IGNORED_LABEL, 1], [IGNORED_LABEL, 1, IGNORED_LABEL]])
    found = _measure("causal_lm", Fixed(logits), _batch([0, 1], labels), is_characters=True)
    loss = -(math.log(0.9) + math.log(0.75) + math.log(0.4)) / 3
    assert {m.name: m.value for m in found.measurements} == {
        "quality.loss": pytest.approx(loss),
        "quality.accuracy": pytest.approx(2 / 3),
        "quality.bpc": pytest.approx(loss / math.log(2)),
    }
    table = makers.columns(found)
    assert (table["label"], table["correct"], table["n_asked"]) == ([None, None], [1, 0], [2, 1])
    assert table["loss"] == pytest.approx([-(math.log(0.9) + math.log(0.75)) / 2, -math.log(0.4)])


def test_bits_per_character_need_characters() -> None:
    labels = torch.zeros(1, 3, dtype=torch.long)
    found = _measure("causal_lm", Fixed(torch.zeros(1, 3, 2)), _batch([0], labels))
    (bpc,) = [m for m in found.measurements if m.name == "quality.bpc"]
    assert (bpc.value, bpc.source, bpc.method) == (None, "unavailable", "the tokens are not characters")


def test_example_that_is_asked_nothing_has_no_loss() -> None:
    labels = torch.tensor([[IGNORED_LABEL] * 3, [0, IGNORED_LABEL, IGNORED_LABEL]])
    found = _measure("causal_lm", Fixed(torch.zeros(2, 3, 2)), _batch([0, 1], labels))
    table = makers.columns(found)
    assert (table["loss"], table["correct"]) == ([None, pytest.approx(math.log(2))], [None, 1])
    assert found.measurements[0].value == pytest.approx(math.log(2))


def test_nothing_labelled_is_unavailable() -> None:
    found = _measure("causal_lm", Fixed(torch.zeros(1, 3, 2)), _batch([0], torch.full((1, 3), IGNORED_LABEL)))
    for measurement in found.measurements[:2]:
        assert (measurement.value, measurement.method) == (None, "nothing is labelled")


def test_loss_that_is_not_finite_is_unavailable() -> None:
    logits = torch.tensor([[0.0, math.nan], [0.0, 1.0]])
    found = _measure("classification", Fixed(logits), _batch([0, 1], torch.tensor([0, 1])))
    values = {m.name: (m.value, m.method) for m in found.measurements}
    assert values["quality.loss"] == (None, "the loss is not finite")
    assert values["quality.accuracy"][0] is not None
    assert [loss is None for loss in makers.columns(found)["loss"]] == [True, False]
