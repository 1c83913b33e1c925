"""Random decisions that never change: at the rate asked for, the same in training and inference, exact in FLOPs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from effaudit import plugins
from effaudit.flop_counting import count_flops
from effaudit.variants._fixed_routing import exit_layers, kept_heads, kept_positions
from effaudit.workload import Task
from tests import makers

FIXED = [
    ("tsa", "classification"),
    ("tsa", "causal_lm"),
    ("budgetformer", "classification"),
    ("early_exit", "classification"),
    ("early_exit", "causal_lm"),
]


def _config(variant: str, task: Task, **options: Any) -> Any:
    return makers.config(variant, task, {"routing": "random_fixed", "keep_rate": 0.5, **options}, n_layers=4)


@pytest.mark.parametrize("rate", [0.0, 0.25, 0.4, 1.0])
def test_rates_are_kept_to(rate: float) -> None:
    config = makers.config("tsa", max_tokens=64, n_layers=5, n_heads=8)
    positions = kept_positions(config, rate)
    assert positions.shape == (64, 5)
    assert positions[:, 0].all()
    for stretch in positions[:, 1:].split(16):  # short texts keep the rate too
        assert (stretch.float().mean(dim=0) - rate).abs().max() <= 0.5 / 16 + 1e-6
    heads = kept_heads(config, rate)
    assert heads.sum() == max(round(rate * 40), 5)
    assert heads.any(dim=1).all()
    exits = exit_layers(config, rate)
    assert ((exits - 1).float().mean() / 4).item() == pytest.approx(rate, abs=0.02)
    assert exits.min() >= 1
    assert exits.max() <= 5


@pytest.mark.parametrize(("variant", "task"), FIXED)
def test_decisions_ignore_the_input_and_are_counted(variant: str, task: Task) -> None:
    config = _config(variant, task)
    model = makers.build(config, dtype=torch.float32)
    assert list(model.state_dict()) == list(makers.build(makers.config(variant, task, n_layers=4)).state_dict())
    batch, other = makers.batch(task, (7, 7, 7), seed=0), makers.batch(task, (7, 7, 7), seed=1)
    routing = makers.run(model, batch).routing
    assert makers.n_differing_decisions(routing, makers.run(model, other).routing, batch.mask) == 0
    assert routing.gate is None
    assert routing.budget is None
    padded = makers.batch(task, (7, 2, 4))
    count = count_flops(makers.run, model, padded)
    formula = plugins.load("variants", variant).flops
    assert count.total == formula(config, padded, makers.run(model, padded).routing, "skip").sum()


@pytest.mark.parametrize(("variant", "task"), FIXED[:3])
def test_training_sees_what_inference_skips(variant: str, task: Task) -> None:
    """Without dropout the training forward is the masked twin of the skipping one; no gate gets a gradient."""
    config = _config(variant, task)
    model = makers.build(config)
    batch = makers.batch(task, (7, 2, 4))
    skipped = makers.run(model, batch).logits[batch.mask] if task == "causal_lm" else makers.run(model, batch).logits
    trained = model.train()(batch).logits
    assert makers.distance(trained[batch.mask] if task == "causal_lm" else trained, skipped) < makers.FLOAT64
    model.loss(batch, 0.5).backward()
    gates = plugins.load("variants", variant).GATES
    moved = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert moved
    assert not [name for name in moved if name.startswith(gates)]


@pytest.mark.parametrize(("variant", "task"), FIXED)
def test_learned_routing_is_untouched(variant: str, task: Task) -> None:
    options = {"keep_rate": 0.25}  # acts under random_fixed alone
    batch = makers.batch(task, (7, 2, 4))
    one, two = (makers.build(makers.config(variant, task, o)) for o in ({}, options))
    assert torch.equal(makers.run(one, batch).logits, makers.run(two, batch).logits)
