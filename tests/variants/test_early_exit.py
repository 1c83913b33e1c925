"""Early exit: who leaves, with which answer, and what is trained."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from effaudit.errors import EffauditError
from effaudit.profile_spec import TrainingSpec
from effaudit.training import _step, parameter_groups
from effaudit.variants import early_exit
from effaudit.variants._blocks import masked_mean, task_loss
from effaudit.variants.early_exit import Ledger
from effaudit.workload import Batch, Routing, Task
from tests import makers
from tests.makers import FLOAT64, LAYERS

TASKS: list[Task] = ["classification", "causal_lm"]
CRITERIA = [("maxprob", 0.7), ("entropy", 0.7), ("margin", 0.5), ("saturation", 0.6), ("patience", 1.0)]


def _leaves(criterion: str, threshold: float, history: list[Tensor], before: Tensor, after: Tensor) -> bool:
    """The rule for one unit in plain words; `history` holds the logits of its tests so far."""
    p = history[-1].softmax(dim=-1)
    best, second = p.sort(descending=True).values[:2].tolist()
    if criterion == "maxprob":
        return best > threshold
    if criterion == "margin":
        return best - second > threshold
    if criterion == "entropy":
        return float(-(p * p.log()).sum()) < threshold
    if criterion == "saturation":
        return float(F.cosine_similarity(before, after, dim=0)) > threshold
    answers = [int(logits.argmax()) for logits in history]
    streak = 0
    while streak + 1 < len(answers) and answers[-2 - streak] == answers[-1]:
        streak += 1
    return streak >= threshold


def _expected(model: Any, of: Batch, frozen: bool) -> tuple[Tensor, Tensor]:
    """Exits and logits, unit by unit; `frozen` keeps the state of tokens that left."""
    o, is_causal = model.options, model.is_causal
    h = model.embedded(of)
    shape = of.tokens.shape if is_causal else of.tokens.shape[:1]
    exits, answers = torch.zeros(shape, dtype=torch.int64), {}
    history: dict[tuple[int, ...], list[Tensor]] = {}
    for layer, block in enumerate(model.blocks):
        before, h = h, block(h.clone(), model.visibility(of))
        if frozen and is_causal:
            h = torch.where((exits == 0)[..., None], h, before)
        logits = model.exit_head(layer, h, None if is_causal else of.mask)
        for unit in (tuple(place.tolist()) for place in torch.ones(shape).nonzero()):
            if layer + 1 >= o.min_layer:
                history.setdefault(unit, []).append(logits[unit])
            if exits[unit]:
                continue
            states = (before[unit], h[unit])
            if not is_causal:
                states = tuple(masked_mean(s[None], of.mask[unit][None])[0] for s in states)
            may = layer + 1 >= o.min_layer and (not is_causal or bool(of.mask[unit]))
            if layer == LAYERS - 1 or (may and _leaves(o.criterion, o.threshold, history[unit], *states)):
                exits[unit], answers[unit] = layer + 1, logits[unit]
    return exits, torch.stack([answers[unit] for unit in sorted(answers)]).unflatten(0, shape)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("state", ["copy", "oracle"])
@pytest.mark.parametrize(("criterion", "threshold"), CRITERIA)
def test_exits_and_answers(task: Task, state: str, criterion: str, threshold: float) -> None:
    seen = set()
    for seed, min_layer in product(range(2), (1, 2)):
        options = {"state": state, "criterion": criterion, "threshold": threshold, "min_layer": min_layer}
        model, of = makers.build(makers.config("early_exit", task, options), seed), makers.batch(task, (5, 3, 4), seed)
        output = makers.run(model, of)
        with torch.inference_mode():
            exits, logits = _expected(model, of, frozen=state == "copy")
        assert torch.equal(output.routing.exits, exits)
        assert makers.distance(output.logits, logits) < FLOAT64
        assert int(exits.min()) >= min_layer
        seen |= set(exits.flatten().tolist())
    assert len(seen) > 1  # else the rule was not put to the test


def test_copy_differs_from_oracle_for_tokens_only() -> None:
    for task in TASKS:
        of = makers.batch(task, (6, 6))
        outputs = [
            makers.run(makers.build(makers.config("early_exit", task, {"state": state, "threshold": 0.9})), of)
            for state in ("copy", "oracle")
        ]
        apart = makers.distance(outputs[0].logits, outputs[1].logits)
        assert apart > 1e-3 if task == "causal_lm" else apart < FLOAT64


def test_impossible_threshold_runs_all_layers() -> None:
    for task in TASKS:
        model, of = makers.build(makers.config("early_exit", task, {"threshold": 2})), makers.batch(task, (5, 3))
        assert (makers.run(model, of).routing.exits == LAYERS).all()


def test_threshold_is_strict() -> None:
    """A constant answer of two equal classes has maxprob 0.5 and margin 0: neither exceeds itself."""
    for criterion, threshold in (("maxprob", 1 / makers.CLASSES), ("margin", 0.0)):
        made_from = makers.config("early_exit", options={"criterion": criterion, "threshold": threshold})
        model = makers.build(made_from, dtype=torch.float64)
        for classifier in model.exit_classifiers:
            torch.nn.init.zeros_(classifier.weight)
            torch.nn.init.zeros_(classifier.bias)
        assert (makers.run(model, makers.batch()).routing.exits == LAYERS).all()


def test_patience_counts_agreements_in_a_row() -> None:
    ledger, unit = Ledger(1, 2, torch.zeros(())), torch.tensor([0])
    streaks = [int(ledger.agreements(unit, torch.tensor([answer]))) for answer in (2, 2, 2, 1, 1, 2)]
    assert streaks == [0, 1, 2, 0, 1, 0]


@pytest.mark.parametrize("task", TASKS)
def test_given_exits_replace_the_criterion(task: Task) -> None:
    model, of = makers.build(makers.config("early_exit", task)), makers.batch(task, (4, 4, 4))
    exits = torch.tensor([1, 3, 2])
    if task == "causal_lm":
        exits = exits[:, None].repeat(1, 4)
    output = makers.run(model, of, Routing(exits=exits))
    assert torch.equal(output.routing.exits, exits)
    if task == "causal_lm":  # examples do not see each other, so each is as if it had left alone
        return
    with torch.inference_mode():
        h, visible = model.embedded(of), model.visibility(of)
        for layer, block in enumerate(model.blocks):
            h = block(h, visible)
            left = exits == layer + 1
            assert makers.distance(output.logits[left], model.exit_head(layer, h, of.mask)[left]) < FLOAT64


def test_min_layer_beyond_the_last_is_refused() -> None:
    with pytest.raises(EffauditError, match="min_layer 4 is beyond the last of 3"):
        early_exit.build(makers.config("early_exit", options={"min_layer": 4}))


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(("loss", "weights"), [("uniform", (1, 1, 1)), ("depth-weighted", (1, 2, 3))])
def test_loss_weighs_the_exits(task: Task, loss: str, weights: tuple[int, ...]) -> None:
    model, of = makers.build(makers.config("early_exit", task, {"loss": loss})).train(), makers.batch(task, (5, 3))
    per_exit, h = [], model.embedded(of)
    for layer, block in enumerate(model.blocks):
        h = block(h, model.visibility(of))
        per_exit.append(task_loss(model.exit_head(layer, h, None if task == "causal_lm" else of.mask), of))
    expected = sum(w * one for w, one in zip(weights, per_exit, strict=True)) / sum(weights)
    assert model.loss(of, 0.7).item() == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize("task", TASKS)
def test_last_and_frozen_trains_in_two_stages(task: Task) -> None:
    model = makers.build(makers.config("early_exit", task, {"loss": "last+frozen"}))
    of = makers.batch(task, (5, 3))
    settings = TrainingSpec(steps=10, learning_rate=0.01, warmup_steps=0)
    optimizer = torch.optim.AdamW(parameter_groups(model, settings), lr=0.01)

    def moved(step: int) -> set[str]:
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        _step(model.train(), of, optimizer, settings, step)
        return {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}

    exits = {name for name, _ in model.named_parameters() if name.startswith("exit_")}
    backbone = {name for name, _ in model.named_parameters()} - exits
    assert moved(4) == backbone
    assert moved(5) == exits  # a language model's exits share the embedding, which stays as it is


def test_one_layer_cannot_be_trained_in_two_stages() -> None:
    with pytest.raises(EffauditError, match="one layer has no exits"):
        early_exit.build(makers.config("early_exit", options={"loss": "last+frozen"}, n_layers=1))
