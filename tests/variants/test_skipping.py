"""Every path that leaves work out gives the output of the path that computes all and multiplies it away."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from effaudit.workload import Batch, Routing, Task
from tests import makers
from tests.makers import FLOAT32, FLOAT64

Case = tuple[str, Task, dict[str, Any]]

CASES: list[Case] = [
    *(
        ("tsa", task, {"mode": mode, "gate": gate})
        for task, mode, gate in product(("classification", "causal_lm"), ("ffn", "ffn+query"), ("scaled", "binary"))
    ),
    *(
        ("tsa", task, {"mode": mode, "gate": gate, "capacity": 0.6})
        for task, mode, gate in product(("classification", "causal_lm"), ("ffn", "ffn+query"), ("scaled", "binary"))
    ),
    *(
        ("early_exit", task, {"criterion": criterion, "threshold": threshold})
        for task in ("classification", "causal_lm")
        for criterion, threshold in (
            *(("maxprob", 0.7), ("entropy", 0.7), ("margin", 0.5)),
            *(("saturation", 0.6), ("patience", 1.0)),
        )
    ),
    *(
        ("budgetformer", "classification", {"k_rule": rule, "head_gate": gate, "budget_scope": scope})
        for rule, gate, scope in (("floor", "soft", "layer"), ("ceil", "binary", "model"), ("round", "soft", "model"))
    ),
]  # type: ignore[assignment]
LENGTHS = [(5, 5, 5), (5, 2, 1), (1, 1), (1,), (4,)]
SHARES = [0.0, 0.5, 1.0]  # all skipped, some, none


def names(case: Case) -> str:
    return "-".join((case[0], case[1], *map(str, case[2].values())))


def pair(case: Case, dtype: torch.dtype, seed: int = 0) -> tuple[Any, Any]:
    """The same weights with both executions."""
    variant, task, options = case
    return tuple(
        makers.build(makers.config(variant, task, {**options, "execution": execution}), seed, dtype)
        for execution in ("skip", "masked")
    )  # type: ignore[return-value]


def assert_same_given(models: tuple[Any, Any], of: Batch, share: float, seed: int, limit: float) -> None:
    skipping, masked = models
    dtype = skipping.embed.weight.dtype
    routing = makers.random_routing(skipping.config, of, share, seed)
    gates = {name: value.to(dtype) for name in ("gate", "head_gate") if (value := getattr(routing, name)) is not None}
    routing = Routing(**{**vars(routing), **gates})
    one, other = makers.run(skipping, of, routing), makers.run(masked, of, routing)
    real = of.mask if skipping.is_causal else slice(None)
    assert torch.isfinite(one.logits).all()
    assert makers.distance(one.logits[real], other.logits[real]) <= limit
    assert makers.n_differing_decisions(one.routing, other.routing, of.mask) == 0


@pytest.mark.parametrize("case", CASES, ids=names)
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, FLOAT64), (torch.float32, FLOAT32)])
def test_given_routing(case: Case, dtype: torch.dtype, limit: float) -> None:
    models = pair(case, dtype)
    for (seed, lengths), share in product(enumerate(LENGTHS), SHARES):
        assert_same_given(models, makers.batch(case[1], lengths, seed), share, seed, limit)


@settings(max_examples=10, deadline=None)
@given(
    case=st.sampled_from(CASES),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple),
    share=st.floats(0, 1),
    seed=st.integers(0, 999),
)
def test_any_given_routing(case: Case, lengths: tuple[int, ...], share: float, seed: int) -> None:
    of = makers.batch(case[1], lengths, seed, n_tokens=7)
    assert_same_given(pair(case, torch.float64, seed), of, share, seed, FLOAT64)


@pytest.mark.parametrize("case", CASES, ids=names)
def test_own_decisions_agree_in_float64(case: Case) -> None:
    skipping, masked = pair(case, torch.float64)
    n_kept = n_all = 0
    for seed, lengths in enumerate(LENGTHS):
        of = makers.batch(case[1], lengths, seed)
        one, other = makers.run(skipping, of), makers.run(masked, of)
        real = of.mask if case[1] == "causal_lm" else slice(None)
        assert makers.n_differing_decisions(one.routing, other.routing, of.mask) == 0
        assert makers.distance(one.logits[real], other.logits[real]) <= FLOAT64
        kept, n = _kept(one.routing, of)
        n_kept, n_all = n_kept + kept, n_all + n
    assert 0 < n_kept < n_all  # else nothing was compared


def _kept(routing: Routing, of: Batch) -> tuple[int, int]:
    """Decisions for going on, of all decisions taken."""
    if routing.heads is not None:
        return int(routing.heads.sum()), routing.heads.numel()
    if routing.tokens is not None:
        tokens = routing.tokens[of.mask][:, 1:]
        return int(tokens.sum()), tokens.numel()
    assert routing.exits is not None
    exits = routing.exits if routing.exits.dim() == 1 else routing.exits[of.mask]
    return int(exits.sum() - len(exits)), len(exits) * (makers.LAYERS - 1)


@pytest.mark.parametrize("case", CASES, ids=names)
def test_own_decisions_that_differ_in_float32_are_counted(
    case: Case, record_property: Callable[[str, object], None]
) -> None:
    skipping, masked = pair(case, torch.float32)
    of = makers.batch(case[1], (5, 2, 4))
    one, other = makers.run(skipping, of).routing, makers.run(masked, of).routing
    n_differing = makers.n_differing_decisions(one, other, of.mask)
    record_property("differing_decisions", n_differing)
    assert n_differing == _compared_one_by_one(one, other, of)


def test_differing_decisions_are_seen() -> None:
    of = makers.batch("causal_lm", (3, 2))
    tokens = torch.ones(2, 3, 2, dtype=torch.bool)
    changed = tokens.clone()
    changed[0, 1, 1] = False
    changed[1, 2, 1] = False  # padding, which is no decision
    one, other = Routing(tokens=tokens), Routing(tokens=changed)
    assert makers.n_differing_decisions(one, other, of.mask) == _compared_one_by_one(one, other, of) == 1
    one, other = Routing(exits=torch.tensor([1, 2])), Routing(exits=torch.tensor([2, 2]))
    assert makers.n_differing_decisions(one, other, of.mask) == _compared_one_by_one(one, other, of) == 1


def _compared_one_by_one(one: Routing, other: Routing, of: Batch) -> int:
    n, real = 0, of.mask.tolist()
    for example in range(of.n_examples):
        for name in ("heads", "tokens", "exits"):
            a, b = getattr(one, name), getattr(other, name)
            if a is None:
                continue
            if name == "heads" or a.dim() == 1:
                n += sum(x != y for x, y in zip(a[example].flatten(), b[example].flatten(), strict=True))
                continue
            for token, is_real in enumerate(real[example]):
                if is_real:
                    pairs = zip(a[example, token].flatten(), b[example, token].flatten(), strict=True)
                    n += sum(x != y for x, y in pairs)
    return int(n)


@pytest.mark.parametrize("case", [case for case in CASES if case[0] != "early_exit"][::2], ids=names)
@pytest.mark.parametrize("execution", ["skip", "masked"])
def test_gradients_flow_in_eval_mode_too(case: Case, execution: str) -> None:
    """Inference writes over its states; what asks for gradients must not, and gets the same answer."""
    variant, task, options = case
    model = makers.build(makers.config(variant, task, {**options, "execution": execution}))
    of = makers.batch(task, (5, 3, 4))
    output = model(of)
    assert makers.distance(makers.run(model, of).logits, output.logits) <= FLOAT64
    output.logits.sum().backward()
    assert model.blocks[0].attn.qkv.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("case", CASES[::3], ids=names)
def test_autocast_changes_nothing_but_precision(case: Case) -> None:
    model, _ = pair(case, torch.float32)
    of = makers.batch(case[1], (5, 3, 4))
    routing = makers.random_routing(model.config, of, 0.5)
    gates = {name: value.float() for name in ("gate", "head_gate") if (value := getattr(routing, name)) is not None}
    routing = Routing(**{**vars(routing), **gates})
    expected = makers.run(model, of, routing).logits
    with torch.autocast("cpu", torch.bfloat16):
        assert makers.distance(makers.run(model, of, routing).logits.float(), expected) < 0.1  # bfloat16 has 8 bits
