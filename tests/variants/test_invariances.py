"""What no model may let happen: the future or the padding deciding an answer."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch

from effaudit.workload import Task
from tests import makers
from tests.makers import FLOAT64

Case = tuple[str, Task, dict[str, Any]]

CRITERIA = (("maxprob", 0.7), ("entropy", 0.7), ("margin", 0.5), ("saturation", 0.6), ("patience", 1.0))
CAUSAL: list[Case] = [
    ("dense", "causal_lm", {}),
    ("static_heads", "causal_lm", {}),
    *(
        ("tsa", "causal_lm", {"mode": mode, "gate": gate})
        for mode, gate in product(("soft", "ffn", "ffn+query"), ("scaled", "binary"))
    ),
    *(
        ("early_exit", "causal_lm", {"state": state, "criterion": criterion, "threshold": threshold, "execution": how})
        for state, (criterion, threshold), how in product(("copy", "oracle"), CRITERIA, ("skip", "masked"))
    ),
]
ENCODERS: list[Case] = [
    ("dense", "classification", {}),
    ("static_heads", "classification", {}),
    *(("tsa", "classification", {"mode": mode}) for mode in ("soft", "ffn", "ffn+query")),
    *(
        ("early_exit", "classification", {"state": state, "criterion": criterion, "threshold": threshold})
        for state, (criterion, threshold) in product(("copy", "oracle"), CRITERIA)
    ),
    *(
        ("budgetformer", "classification", {"budget_scope": scope, "execution": how})
        for scope, how in product(("layer", "model"), ("skip", "masked"))
    ),
]


def names(case: Case) -> str:
    return "-".join((case[0], case[1], *map(str, case[2].values())))


@pytest.mark.parametrize("case", CAUSAL, ids=names)
def test_later_tokens_never_change_earlier_logits(case: Case) -> None:
    model, of = makers.build(makers.config(*case)), makers.batch("causal_lm", (7, 7, 5))
    before = makers.run(model, of)
    for first in (1, 4, 6):
        tokens = of.tokens.clone()
        tokens[:, first:] = (tokens[:, first:] + 5) % makers.VOCAB
        after = makers.run(model, replace(of, tokens=tokens))
        assert makers.distance(after.logits[:, :first], before.logits[:, :first]) < FLOAT64
        assert makers.distance(after.logits, before.logits) > 1e-3
        for name in ("tokens", "exits"):
            decided = getattr(before.routing, name)
            if decided is not None and case[0] != "static_heads":
                assert torch.equal(getattr(after.routing, name)[:2, :first], decided[:2, :first])


@pytest.mark.parametrize("case", CAUSAL + ENCODERS, ids=names)
def test_padding_changes_no_answer_and_no_decision(case: Case) -> None:
    model = makers.build(makers.config(*case))
    tight = makers.batch(case[1], (5, 5, 5))
    wide = makers.batch(case[1], (5, 5, 5), seed=1, n_tokens=8)  # its padding holds random ids
    wide.tokens[:, :5] = tight.tokens
    one, other = makers.run(model, tight), makers.run(model, wide)
    logits = other.logits[:, :5] if case[1] == "causal_lm" else other.logits
    assert makers.distance(logits, one.logits) < FLOAT64
    for name in ("heads", "tokens", "exits"):
        a, b = getattr(one.routing, name), getattr(other.routing, name)
        if a is not None:
            is_per_token = name == "tokens" or a.dim() == 2
            assert torch.equal(a, b[:, :5] if is_per_token and name != "heads" else b)


@pytest.mark.parametrize("case", CAUSAL + ENCODERS, ids=names)
def test_padding_is_never_skipped(case: Case) -> None:
    """Also where decisions from outside would have it so."""
    model, of = makers.build(makers.config(*case)), makers.batch(case[1], (2, 5), n_tokens=7)
    for routing in (None, makers.random_routing(model.config, of, 0.0)):
        taken = makers.run(model, of, routing).routing
        if taken.tokens is not None:
            assert taken.tokens[~of.mask].all()
        if taken.exits is not None and taken.exits.dim() == 2:
            assert (taken.exits[~of.mask] == makers.LAYERS).all()
