"""Counted FLOPs equal each variant's closed formula as integers, at every setting."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from effaudit import plugins
from effaudit.flop_counting import attention_of, count_flops
from effaudit.model_targets import OWN
from effaudit.workload import Batch, Execution, Routing, Task
from tests import makers

Case = tuple[str, Task, dict[str, Any]]


def _grid(variant: str, task: Task, **choices: tuple[object, ...]) -> list[Case]:
    return [(variant, task, dict(zip(choices, values, strict=True))) for values in product(*choices.values())]


ALL: tuple[Execution, ...] = ("skip", "masked", "auto")
THRESHOLDS = {"maxprob": 0.7, "entropy": 0.7, "margin": 0.5, "saturation": 0.6, "patience": 1.0}
CASES: list[Case] = []
for _task in ("classification", "causal_lm"):
    CASES += _grid("dense", _task, execution=ALL)  # type: ignore[arg-type]
    CASES += _grid("static_heads", _task, head_fraction=(0.1, 0.5, 1.0))  # type: ignore[arg-type]
    CASES += _grid(
        *("tsa", _task),  # type: ignore[arg-type]
        mode=("soft", "ffn", "ffn+query"),
        gate=("scaled", "binary"),
        execution=ALL,
    )
    CASES += _grid(
        *("tsa", _task),  # type: ignore[arg-type]
        mode=("ffn", "ffn+query"),
        capacity=(0.3, 0.6, 1.0),
        execution=ALL,
    )
    CASES += [
        (variant, task, {**options, "threshold": THRESHOLDS[options["criterion"]]})
        for variant, task, options in _grid(
            *("early_exit", _task),  # type: ignore[arg-type]
            criterion=tuple(THRESHOLDS),
            state=("copy", "oracle"),
            min_layer=(1, 2),
            execution=ALL,
        )
    ]
CASES += _grid(
    *("budgetformer", "classification"),
    k_rule=("floor", "ceil", "round"),
    head_gate=("soft", "binary"),
    budget_scope=("layer", "model"),
    execution=ALL,
)
CASES.append(("early_exit", "causal_lm", {"min_layer": makers.LAYERS}))
SKIPPING = [case for case in CASES if case[2].get("execution") == "skip" and case[0] not in ("dense", "static_heads")]


def names(case: Case) -> str:
    return "-".join((case[0], case[1], *map(str, case[2].values())))


def _model(case: Case) -> Any:
    return makers.build(makers.config(*case))


def _execution(model: Any) -> Execution:
    return model.config.options["execution"]


def _formula(model: Any, of: Batch, routing: Routing, execution: Execution | None = None) -> torch.Tensor:
    module = plugins.load("variants", model.config.variant)
    return module.flops(model.config, of, routing, execution or _execution(model))


def _counted(model: Any, of: Batch, routing: Routing | None = None) -> tuple[int, Routing]:
    taken: list[Routing] = []

    def call() -> None:
        taken.append(makers.run(model, of, routing).routing)

    count = count_flops(call)
    assert count.complete
    return count.total, taken[0]


@pytest.mark.parametrize("case", CASES, ids=names)
def test_own_decisions(case: Case) -> None:
    model, of = _model(case), makers.batch(case[1], (5, 2, 4))
    total, routing = _counted(model, of)
    formula = _formula(model, of, routing)
    assert (formula.dtype, formula.shape) == (torch.int64, (3,))
    assert total == int(formula.sum())


@pytest.mark.parametrize("case", SKIPPING[::3], ids=names)
def test_each_example_costs_what_its_row_says(case: Case) -> None:
    model, of = _model(case), makers.batch(case[1], (5, 2, 4), seed=1)
    routing = makers.random_routing(model.config, of, 0.5, seed=1)
    taken = makers.run(model, of, routing).routing
    rows = _formula(model, of, taken)
    for i in range(3):
        total, _ = _counted(model, _part(of, [i]), _part(routing, [i]))
        assert total == int(rows[i])
    repeated = _part(of, [1, 1, 1])
    total, taken = _counted(model, repeated, _part(routing, [1, 1, 1]))
    assert _formula(model, repeated, taken).tolist() == [int(rows[1])] * 3
    assert total == 3 * int(rows[1])


def _part(whole: Any, rows: list[int]) -> Any:
    """A Batch or Routing of these examples."""
    tensors = {name: value[rows] for name, value in vars(whole).items() if isinstance(value, torch.Tensor)}
    return replace(whole, **tensors)


@settings(max_examples=12, deadline=None)
@given(
    case=st.sampled_from(SKIPPING),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple),
    width=st.integers(6, 8),
    share=st.floats(0, 1),
    seed=st.integers(0, 999),
)
def test_given_decisions(case: Case, lengths: tuple[int, ...], width: int, share: float, seed: int) -> None:
    model, of = _model(case), makers.batch(case[1], lengths, seed, n_tokens=width)
    total, taken = _counted(model, of, makers.random_routing(model.config, of, share, seed))
    assert total == int(_formula(model, of, taken).sum())


@pytest.mark.parametrize("case", SKIPPING[::3], ids=names)
def test_best_and_dense(case: Case) -> None:
    """`best` is never above what runs, and what the best options run; `dense` is the dense model's count."""
    model, of = _model(case), makers.batch(case[1], (5, 2, 4))
    total, routing = _counted(model, of)
    best = int(_formula(model, of, routing, "best").sum())
    is_best = case[2].get("mode", "ffn+query") == "ffn+query" and case[2].get("state", "copy") == "copy"
    assert best == total if is_best else best <= total
    dense, _ = _counted(makers.build(makers.config("dense", case[1])), of)
    assert int(_formula(model, of, routing, "dense").sum()) == dense


@pytest.mark.parametrize("lengths", [(5, 5), (1,), (3, 1)])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_nothing_and_everything_skipped(lengths: tuple[int, ...], share: float) -> None:
    for case in SKIPPING[:: len(SKIPPING) // 6]:
        model, of = _model(case), makers.batch(case[1], lengths)
        total, taken = _counted(model, of, makers.random_routing(model.config, of, share))
        assert total == int(_formula(model, of, taken).sum())


@pytest.mark.parametrize("mode", ["ffn", "ffn+query"])
@pytest.mark.parametrize("capacity", [0.2, 0.5, 0.9, 1.0])
def test_places_are_run_whether_or_not_a_token_needs_them(capacity: float, mode: str) -> None:
    """Without padding, room for `capacity` of 8 tokens costs the same whatever is decided."""
    model, of = _model(("tsa", "causal_lm", {"mode": mode, "capacity": capacity})), makers.batch("causal_lm", (8, 8))
    n_left = 2 * (makers.LAYERS - 1) * (8 - math.ceil(8 * capacity))
    spared = 4 * makers.D_MODEL * makers.D_FF
    spared += 4 * makers.D_MODEL**2 + 4 * 8 * makers.D_MODEL if mode == "ffn+query" else 0
    for share in (0.0, 0.5, 1.0):
        total, routing = _counted(model, of, makers.random_routing(model.config, of, share))
        assert total == int(_formula(model, of, routing).sum())
        assert total == int(_formula(model, of, routing, "masked").sum()) - n_left * spared


@pytest.mark.parametrize("bias", [-1.0, 1.0, 20.0])
def test_soft_gates_spare_nothing(bias: float) -> None:
    """The published soft TSA costs more than dense whatever it claims to skip (9,243,648 against 9,043,968)."""
    size = {"d_model": 64, "n_layers": 4, "n_heads": 4, "d_ff": 128, "vocab_size": 32, "max_tokens": 16}
    soft = makers.config("tsa", "causal_lm", {"mode": "soft", "router_bias": bias}, **size)
    model, of = plugins.load("variants", "tsa").build(soft).eval(), makers.batch("causal_lm", (16, 16))
    total, routing = _counted(model, of)
    assert total == int(_formula(model, of, routing).sum()) == 9_243_648
    assert int(_formula(model, of, routing, "dense").sum()) == 9_043_968
    assert routing.gate is not None
    assert routing.gate[..., 1:].mean().item() == pytest.approx(1 / (1 + 2.718281828**bias), abs=0.02)


def test_example_that_left_costs_nothing_more() -> None:
    case: Case = ("early_exit", "classification", {})
    model, of = _model(case), makers.batch("classification", (5, 5))

    def calls(*exits: int) -> dict[str, int]:
        routing = Routing(exits=torch.tensor(exits))
        count = count_flops(model, of, routing)
        return {path: row.flops for path, row in count.by_module.items() if path.startswith("blocks.")}

    assert sum(flops for path, flops in calls(1, 1).items() if not path.startswith("blocks.0")) == 0
    one, both = calls(1, 3), calls(3, 3)
    for layer in (1, 2):
        assert 2 * one[f"blocks.{layer}"] == both[f"blocks.{layer}"] > 0


@pytest.mark.parametrize(
    ("variant", "options"),
    [
        ("tsa", {"mode": "ffn"}),
        ("tsa", {"mode": "ffn+query"}),
        ("early_exit", {"threshold": 0.5}),
        ("budgetformer", {}),
        ("static_heads", {}),
    ],
)
def test_skipping_is_counted_on_the_modules_that_skip(variant: str, options: dict[str, Any]) -> None:
    model, of = makers.build(makers.config(variant, options=options)), makers.batch(lengths=(5, 3, 5))
    with torch.no_grad():
        rows = count_flops(model, of).by_module
    assert rows[""].own == 0
    assert all(rows[f"blocks.{layer}"].own == 0 for layer in range(makers.LAYERS))
    assert rows["blocks.0.attn"].own > 0


def _attention_that_ran(model: Any, of: Batch, routing: Routing) -> tuple[int, int]:
    """Core and layer by hand: halted and exited tokens leave out their queries, heads left out everything."""
    config, (n_examples, n_tokens) = model.config, of.tokens.shape
    projection, core = 4 * config.d_model**2, 4 * n_tokens * config.d_model  # of one token in one layer
    n_keys = n_queries = n_examples * n_tokens * config.n_layers
    if _execution(model) != "masked" and routing.heads is not None:
        n_run = int(routing.heads.sum())
        return n_run * n_tokens * core // config.n_heads, n_run * n_tokens * (core + 2 * projection) // config.n_heads
    if _execution(model) != "masked" and routing.path[-1] == "ffn+query":
        n_queries = int(routing.tokens.sum())
    if _execution(model) != "masked" and routing.exits is not None and routing.path[-1] != "oracle":
        n_queries = int(routing.exits.sum()) * (n_tokens if routing.exits.dim() == 1 else 1)
        n_keys = n_queries if routing.exits.dim() == 1 else n_keys
    return n_queries * core, n_queries * (core + projection) + n_keys * projection


@pytest.mark.parametrize("case", CASES, ids=names)
def test_attention_is_told_from_the_rest(case: Case) -> None:
    model, of = _model(case), makers.batch(case[1], (5, 2, 4))
    routing = makers.run(model, of).routing
    found = attention_of(count_flops(makers.run, model, of).by_module)
    assert (found.core, found.layer) == _attention_that_ran(model, of, routing)


@pytest.mark.parametrize("variant", sorted(set(plugins.names("variants")) - set(OWN)))
@pytest.mark.parametrize("task", ["classification", "causal_lm"])
def test_dense_attention_is_the_dense_models(variant: str, task: Task) -> None:
    if task not in plugins.load("variants", variant).TASKS:
        return
    model, of = _model((variant, task, {})), makers.batch(task, (5, 2, 4))
    counted = attention_of(count_flops(_model(("dense", task, {})), of).by_module)
    formula = model.dense_attention(of)
    assert (formula.core, formula.layer) == (counted.core, counted.layer)


@pytest.mark.parametrize(
    ("variant", "task", "tests"),
    [
        ("tsa", "causal_lm", ("routers.0", "routers.1")),
        ("early_exit", "causal_lm", ("exit_heads.0", "exit_heads.1")),
        ("early_exit", "classification", ("exit_classifiers.0", "exit_classifiers.1")),
        ("budgetformer", "classification", ("budgets.0", "budgets.1", "budgets.2")),
    ],
)
def test_routers_and_exit_tests_have_rows_of_their_own(variant: str, task: Task, tests: tuple[str, ...]) -> None:
    model, of = _model((variant, task, {})), makers.batch(task, (5, 2, 4))
    with torch.no_grad():
        rows = count_flops(model, of).by_module
    assert rows[""].own == 0
    assert all(rows[path].flops > 0 for path in tests)
