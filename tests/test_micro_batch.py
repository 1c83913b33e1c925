"""Passes of a few examples change no answer, and the number of tokens in one follows the clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
import torch
from torch import Tensor

from effaudit import micro_batch
from effaudit.micro_batch import choose_micro_batch, quickest
from effaudit.workload import Routing, Task
from tests import makers
from tests.makers import FLOAT64

CASES: list[tuple[str, Task]] = [
    (variant, task)
    for variant in ("dense", "tsa", "early_exit", "static_heads")
    for task in ("classification", "causal_lm")
]  # type: ignore[misc]
CASES.append(("budgetformer", "classification"))


@pytest.mark.parametrize("tokens_per_pass", [1, 10, 19])  # one example, two, three and the rest
@pytest.mark.parametrize(("variant", "task"), CASES)
def test_passes_change_no_answer_and_no_decision(variant: str, task: Task, tokens_per_pass: int) -> None:
    whole = makers.build(makers.config(variant, task))
    parts = makers.build(makers.config(variant, task, {"micro_batch": tokens_per_pass}))
    of = makers.batch(task, (5, 3, 4, 5, 1))
    for routing in (None, makers.random_routing(whole.config, of, 0.5)):
        one, other = makers.run(parts, of, routing), makers.run(whole, of, routing)
        assert makers.distance(one.logits, other.logits) <= FLOAT64
        assert one.routing.path == other.routing.path
        for name in (field.name for field in fields(Routing)):
            if isinstance(getattr(other.routing, name), Tensor):
                torch.testing.assert_close(getattr(one.routing, name), getattr(other.routing, name))


def test_training_takes_a_batch_as_a_whole() -> None:
    model, of = makers.build(makers.config("dense", options={"micro_batch": 1})), makers.batch()
    sizes: list[int] = []
    model.blocks[0].register_forward_pre_hook(lambda _, args: sizes.append(len(args[0])))
    makers.run(model, of)
    makers.run(model.train(), of)
    assert sizes == [1, 1, 1, 3]


def _clock(model: Any, seconds: dict[int | None, float]) -> Any:
    """A clock by which each run takes as long as is said for its tokens per pass."""

    def ticks() -> Iterator[float]:
        now = 0.0
        while True:
            yield now
            now += seconds[model.tokens_per_pass] / 2  # read twice a run, but for the limit's reading

    times = ticks()
    return lambda: next(times)


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [({None: 1.0, 16: 0.5, 32: 0.8}, 16), ({None: 1.0, 16: 2.0, 32: 0.8}, 32), ({None: 1.0, 16: 1.2, 32: 0.99}, None)],
)
def test_quickest_size_is_chosen_where_it_is_worth_it(
    seconds: dict[int | None, float], chosen: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(micro_batch, "CANDIDATES", (16, 32, 4096))  # the last holds the whole batch
    model, of = makers.build(makers.config("dense")), makers.batch(lengths=(8,) * 6)
    choose_micro_batch(model, of, clock=_clock(model, seconds))
    assert model.tokens_per_pass == chosen


def test_one_lucky_round_is_no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(micro_batch, "CANDIDATES", (16,))
    now, runs = [0.0], {None: 0, 16: 0}

    def run(size: int | None) -> None:
        runs[size] += 1
        now[0] += 0.5 if size == 16 and runs[16] == 2 else 1.0

    assert quickest(run, 6, 8, lambda: now[0]) is None
    assert runs[16] == micro_batch.MIN_ROUNDS


def test_a_size_that_was_asked_for_stays() -> None:
    model = makers.build(makers.config("dense", options={"micro_batch": 7}))
    choose_micro_batch(model, makers.batch(lengths=(8,) * 6))
    assert model.tokens_per_pass == 7


def test_other_models_are_left_alone() -> None:
    model = torch.nn.Linear(2, 2)
    choose_micro_batch(model, makers.batch())
    assert not hasattr(model, "tokens_per_pass")
