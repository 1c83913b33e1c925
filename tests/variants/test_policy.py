"""`execution: auto`: what the costs say is done, told, counted and answered alike."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch

from effaudit import plugins
from effaudit.flop_counting import count_flops
from effaudit.variants._policy import Cost, Policy, Trial, cost_of
from effaudit.workload import Routing, Task
from tests import makers
from tests.makers import FLOAT64

CASES: list[tuple[str, Task, dict[str, Any]]] = [
    *(("tsa", task, {"mode": mode, "gate": gate}) for task, mode, gate in product(  # type: ignore[misc]
        ("classification", "causal_lm"), ("ffn", "ffn+query"), ("scaled", "binary")
    )),
    ("early_exit", "causal_lm", {"threshold": 0.3}),
    ("early_exit", "causal_lm", {"criterion": "saturation", "threshold": 0.6}),
    ("budgetformer", "classification", {"head_gate": "soft"}),
    ("budgetformer", "classification", {"head_gate": "binary", "budget_scope": "model"}),
]  # fmt: skip
NEVER, ALWAYS, BELOW_HALF = Cost(2, 0, 0, 1), Cost(0, 0, 0, 1), Cost(0, 2, 0, 1)


def names(case: tuple[str, Task, dict[str, Any]]) -> str:
    return "-".join((case[0], case[1], *map(str, case[2].values())))


def test_costs_follow_from_trials() -> None:
    def trial(share: float, n_sets: float) -> tuple[Trial, float]:
        return Trial(lambda: None, share, n_sets), 0.5 + 2 * share + 0.25 * n_sets

    points = [trial(0.25, 1.0), trial(0.75, 1.0), trial(0.25, 0.125), trial(0.75, 0.125)]
    trials, seconds = zip(*points, (Trial(lambda: None, is_masked=True), 1.5), strict=True)
    cost = cost_of(trials, seconds)
    assert vars(cost) == pytest.approx({"fixed": 0.5, "per_share": 2, "per_set": 0.25, "masked": 1.5})
    assert cost.is_skipping(0.4, 0.5)
    assert not cost.is_skipping(0.4, 1.0)


def test_two_trials_are_enough_where_there_are_no_sets() -> None:
    trials = [Trial(lambda: None, is_masked=True), Trial(lambda: None, 0.25), Trial(lambda: None, 0.75)]
    cost = cost_of(trials, [1.0, 0.5, 1.1])
    assert [cost.is_skipping(share, 0) for share in (0.0, 0.66, 0.67, 1.0)] == [True, True, False, False]


def test_the_nearest_known_size_decides() -> None:
    policy = Policy()
    assert policy.is_skipping(1, 1.0)
    policy.costs = {policy.size(64): NEVER, policy.size(4096): ALWAYS}
    assert [policy.is_skipping(n, 0.5) for n in (1, 64, 65, 511, 4096, 9999)] == [
        False,
        False,
        False,
        False,
        True,
        True,
    ]


def _auto(case: tuple[str, Task, dict[str, Any]], cost: Cost) -> Any:
    variant, task, options = case
    model = makers.build(makers.config(variant, task, {**options, "execution": "auto"}))
    model.policy.costs[0] = cost
    return model


@pytest.mark.parametrize("case", CASES, ids=names)
def test_every_choice_gives_the_answers_of_the_masked_path(case: tuple[str, Task, dict[str, Any]]) -> None:
    variant, task, options = case
    masked = makers.build(makers.config(variant, task, {**options, "execution": "masked"}))
    for cost, (seed, lengths) in product((NEVER, ALWAYS, BELOW_HALF), enumerate([(5, 5, 5), (5, 2, 1), (4,)])):
        of = makers.batch(task, lengths, seed)
        routing = makers.random_routing(masked.config, of, 0.5, seed)
        one, other = makers.run(_auto(case, cost), of, routing), makers.run(masked, of, routing)
        real = of.mask if task == "causal_lm" else slice(None)
        assert makers.distance(one.logits[real], other.logits[real]) <= FLOAT64
        assert makers.n_differing_decisions(one.routing, other.routing, of.mask) == 0


@pytest.mark.parametrize("case", CASES, ids=names)
@pytest.mark.parametrize("cost", [NEVER, ALWAYS, BELOW_HALF], ids=["never", "always", "below half"])
def test_the_formula_says_what_ran(case: tuple[str, Task, dict[str, Any]], cost: Cost) -> None:
    model = _auto(case, cost)
    of = makers.batch(case[1], (5, 2, 4))
    taken: list[Routing] = []
    count = count_flops(
        lambda: taken.append(makers.run(model, of, makers.random_routing(model.config, of, 0.5)).routing)
    )
    formula = plugins.load("variants", case[0]).flops
    assert count.total == int(formula(model.config, of, taken[0], "auto").sum())
    chosen = taken[0].masked
    assert chosen is not None
    if cost is ALWAYS:
        assert not chosen.any()
        assert count.total == int(formula(model.config, of, taken[0], "skip").sum())
    if cost is NEVER:
        assert chosen.any()
        assert count.total > int(formula(model.config, of, taken[0], "skip").sum())


@pytest.mark.parametrize("case", CASES, ids=names)
def test_trials_are_one_masked_and_several_that_skip(case: tuple[str, Task, dict[str, Any]]) -> None:
    model = _auto(case, ALWAYS)
    with torch.inference_mode():
        trials = model.trials(makers.batch(case[1], (5, 5, 5)))
        flops = [count_flops(trial.run).total for trial in trials]
    assert [trial.is_masked for trial in trials] == [True, *[False] * (len(trials) - 1)]
    assert all(flops[0] > n for n in flops[1:])
    assert min(t.share for t in trials) < 0.5 < max(t.share for t in trials if not t.is_masked)
