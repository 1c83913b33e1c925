"""BudgetFormer: how many heads, which ones, and what its losses ask for."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from effaudit.errors import EffauditError
from effaudit.variants import budgetformer, dense
from effaudit.variants._blocks import masked_mean, task_loss
from effaudit.workload import Batch, Routing
from tests import makers
from tests.makers import FLOAT64, HEADS, LAYERS


def _force(model: Any, s: float | None = None, scores: list[float] | None = None) -> None:
    """The same budget and scores for every input."""
    for net in model.budgets:
        if s is not None:
            torch.nn.init.zeros_(net.budget.weight)
            torch.nn.init.constant_(net.budget.bias, _logit(s))
        if scores is not None:
            torch.nn.init.zeros_(net.scores.weight)
            with torch.no_grad():
                net.scores.bias.copy_(torch.tensor(scores * (len(net.scores.bias) // len(scores))))


def _logit(s: float) -> float:
    return 1e4 if s == 1 else -1e4 if s == 0 else math.log(s / (1 - s))


def _dense_logits(model: Any, of: Batch) -> Tensor:
    twin = dense.build(makers.config("dense")).double().eval()
    twin.load_state_dict({name: model.state_dict()[name] for name in twin.state_dict()})
    return makers.run(twin, of).logits


@pytest.mark.parametrize("scope", ["layer", "model"])
@pytest.mark.parametrize("execution", ["skip", "masked"])
@pytest.mark.parametrize("head_gate", ["soft", "binary"])
def test_full_budget_and_uniform_scores_equal_dense(scope: str, execution: str, head_gate: str) -> None:
    options = {"budget_scope": scope, "execution": execution, "head_gate": head_gate}
    model, of = makers.build(makers.config("budgetformer", options=options)), makers.batch(lengths=(5, 3, 1))
    _force(model, 1.0, [0.0] * HEADS)
    expected = _dense_logits(model, of)
    assert makers.distance(makers.run(model, of).logits, expected) < FLOAT64
    assert makers.distance(makers.run(model.train(), of).logits, expected) < FLOAT64


def test_given_heads_with_unit_gates_equal_dense() -> None:
    model, of = makers.build(makers.config("budgetformer")), makers.batch(lengths=(5, 3))
    routing = Routing(heads=torch.ones(2, LAYERS, HEADS, dtype=torch.bool))
    assert makers.distance(makers.run(model, of, routing).logits, _dense_logits(model, of)) < FLOAT64


def _model_of(n_heads: int, rule: str, dtype: torch.dtype = torch.float32) -> Any:
    size = {"n_heads": n_heads, "d_model": 2 * n_heads, "n_layers": 1}
    return makers.build(makers.config("budgetformer", options={"k_rule": rule}, **size), dtype=dtype)


def _n_heads(model: Any, s: float) -> Tensor:
    _force(model, s)
    heads = makers.run(model, makers.batch()).routing.heads
    assert heads is not None
    return heads[:, 0].sum(dim=1)


@pytest.mark.parametrize("rule", ["floor", "ceil", "round"])
def test_one_head_runs_at_least(rule: str) -> None:
    assert _n_heads(_model_of(8, rule), 0.0).tolist() == [1, 1, 1]
    assert _n_heads(_model_of(8, rule), 1.0).tolist() == [8, 8, 8]


def test_the_papers_smallest_budget_is_one_head() -> None:
    """s = 0.085 of 8 heads: floor alone would be none; the true share is 12.5 %, not 8.5 %."""
    for rule in ("floor", "ceil", "round"):
        k = _n_heads(_model_of(8, rule), 0.085)
        assert k.tolist() == [1, 1, 1]
        assert (k / 8).tolist() == [0.125] * 3


@pytest.mark.parametrize(
    ("s", "floor", "ceil", "nearest"), [(0.3, 2, 3, 2), (0.36, 2, 3, 3), (0.45, 3, 4, 4), (0.99, 7, 8, 8)]
)
def test_k_rules(s: float, floor: int, ceil: int, nearest: int) -> None:
    for rule, k in (("floor", floor), ("ceil", ceil), ("round", nearest)):
        assert _n_heads(_model_of(8, rule), s).tolist() == [k] * 3


@pytest.mark.parametrize("n_heads", [8, 12])
@pytest.mark.parametrize("rule", ["floor", "ceil", "round"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exact_products_do_not_tip_over(n_heads: int, rule: str, dtype: torch.dtype) -> None:
    """s = 3/8 through a sigmoid may come out as 0.37499997; it means three heads under every rule."""
    model = _model_of(n_heads, rule, dtype)
    for k in range(1, n_heads):
        assert _n_heads(model, k / n_heads).tolist() == [k] * 3


def test_the_best_scored_heads_run() -> None:
    model = makers.build(makers.config("budgetformer"))
    _force(model, 0.5, [0.1, 0.9, -2.0, 0.3])
    heads = makers.run(model, makers.batch()).routing.heads
    assert heads is not None
    assert (heads == torch.tensor([False, True, False, True])).all()


def test_ties_go_to_the_lowest_index() -> None:
    model = makers.build(makers.config("budgetformer"))
    _force(model, 0.5, [0.0] * HEADS)
    heads = makers.run(model, makers.batch()).routing.heads
    assert heads is not None
    assert (heads == torch.tensor([True, True, False, False])).all()


def test_gates_follow_the_equations() -> None:
    """z = masked mean; s, u from it; m = min(1, s H softmax(u / tau)); all heads in training, k at inference."""
    model, of = makers.build(makers.config("budgetformer")), makers.batch(lengths=(5, 2))
    soft, hard = makers.run(model.train(), of).routing, makers.run(model.eval(), of).routing
    with torch.inference_mode():
        z = masked_mean(model.blocks[0].norm1(model.embedded(of)), of.mask)
        net = model.budgets[0]
        s = torch.sigmoid(net.budget(torch.relu(net.hidden(z))))
        m = (s * HEADS * torch.softmax(net.scores(z) / 0.5, dim=-1)).clamp(max=1)
    for routing in (soft, hard):
        assert routing.budget is not None
        assert routing.head_gate is not None
        torch.testing.assert_close(routing.budget[:, 0], s[:, 0])
        torch.testing.assert_close(routing.head_gate[:, 0], m)
    assert (m.sum(dim=1) <= s[:, 0] * HEADS + 1e-9).all()


def test_binary_gates_are_ones_at_inference() -> None:
    model = makers.build(makers.config("budgetformer", options={"head_gate": "binary"}))
    gate = makers.run(model, makers.batch()).routing.head_gate
    assert gate is not None
    assert (gate == 1).all()
    gate = makers.run(model.train(), makers.batch()).routing.head_gate
    assert gate is not None
    assert (gate < 1).any()


def test_scope_of_the_budget() -> None:
    of = makers.batch()
    for scope, n_budgets in (("model", 1), ("layer", LAYERS)):
        model = makers.build(makers.config("budgetformer", options={"budget_scope": scope}))
        budget = makers.run(model, of).routing.budget
        assert budget is not None
        assert budget.shape == (3, LAYERS)
        assert len(budget[0].unique()) == n_budgets == len(model.budgets)


def test_starts_in_the_middle_of_the_band() -> None:
    torch.manual_seed(0)
    budget = makers.run(budgetformer.build(makers.config("budgetformer")).eval(), makers.batch()).routing.budget
    assert budget is not None
    assert budget.mean().item() == pytest.approx(0.5, abs=0.15)


def _extra_loss(options: dict[str, Any], progress: float, s: float) -> float:
    """What the loss has beyond the task's, with uniform scores and the same budget everywhere."""
    model, of = makers.build(makers.config("budgetformer", options={"noise": 0, **options})).train(), makers.batch()
    _force(model, s, [0.0] * HEADS)
    total = model.loss(of, progress)
    return float(total.detach() - task_loss(makers.run(model, of).logits, of))


@pytest.mark.parametrize(("s", "expected"), [(0.05, 0.05), (0.1, 0), (0.5, 0), (0.9, 0), (0.97, 0.07)])
def test_band_loss_is_zero_inside_the_band(s: float, expected: float) -> None:
    for weight in (1.0, 3.0):
        options = {"lambda_budget": weight, "lambda_entropy": 0}
        assert _extra_loss(options, 0.3, s) == pytest.approx(weight * expected, abs=1e-7)


@pytest.mark.parametrize("s", [0.2, 0.4, 0.7])
def test_target_loss_is_the_squared_distance(s: float) -> None:
    options = {"budget_loss": "target", "s_target": 0.4, "lambda_budget": 2, "lambda_entropy": 0}
    assert _extra_loss(options, 0.3, s) == pytest.approx(2 * (s - 0.4) ** 2, abs=1e-7)


@pytest.mark.parametrize(("progress", "factor"), [(0, -1), (0.25, -0.5), (0.5, 0), (1, 1)])
def test_entropy_is_rewarded_first_and_penalised_last(progress: float, factor: float) -> None:
    """Uniform relevance has normalised entropy 1."""
    assert _extra_loss({"lambda_entropy": 0.3}, progress, 0.5) == pytest.approx(0.3 * factor, abs=1e-7)


def test_temperature_falls_from_start_to_end() -> None:
    model, of = makers.build(makers.config("budgetformer")).train(), makers.batch()
    for progress in (0.0, 0.5, 1.0):
        model.loss(of, progress)
        assert model.temperature.item() == pytest.approx(0.5 + 1.5 * math.exp(-5 * progress))


def test_noise_falls_to_zero_and_acts_in_training_only() -> None:
    model, of = makers.build(makers.config("budgetformer", options={"noise": 2.0})).train(), makers.batch()

    def losses(progress: float) -> set[float]:
        return {model.loss(of, progress).item() for _ in range(3)}

    assert len(losses(0.0)) == 3
    assert len(losses(1.0)) == 1
    model.loss(of, 0.0)
    model.eval()
    assert torch.equal(makers.run(model, of).logits, makers.run(model, of).logits)


def test_language_is_refused_with_the_reason() -> None:
    with pytest.raises(EffauditError, match="each would see the future") as caught:
        budgetformer.build(makers.config("budgetformer", "causal_lm"))
    assert "tsa or early_exit" in caught.value.hint


def test_budget_offset_moves_budgets_at_inference_alone() -> None:
    batch = makers.batch()
    plain, moved = (makers.build(makers.config("budgetformer", options={"budget_offset": o})) for o in (0.0, 0.3))
    before, after = makers.run(plain, batch).routing, makers.run(moved, batch).routing
    assert before.budget is not None
    assert after.budget is not None
    first = before.budget[:, 0]  # later layers see other states
    assert torch.equal(after.budget[:, 0], (first + 0.3).clamp(0, 1))
    assert after.heads.sum() > before.heads.sum()
    assert torch.equal(plain.train().loss(batch, 1.0), moved.train().loss(batch, 1.0))


def test_all_heads_run_with_the_gates_of_training() -> None:
    config = makers.config("budgetformer", options={"k_rule": "all", "noise": 0.0})
    model, batch = makers.build(config), makers.batch(lengths=(5, 3))
    soft = makers.run(model, batch)
    assert soft.routing.heads.all()
    assert makers.distance(model.train()(batch).logits, soft.logits) < makers.FLOAT64
