"""The papers' own figures as steps of the ladder."""

import pytest

from effaudit.errors import EffauditError
from effaudit.ladder import STEPS
from effaudit.profile_spec import AuditProfile, load_profile, validated
from effaudit.published import METHODS, PUBLISHED, published


def step(name: str, of: str) -> float | None:
    (row,) = [row for row in PUBLISHED if row.name == name]
    return next(step.change for step in row.steps if step.step == of)


def test_token_layer_operations_are_those_of_the_papers() -> None:
    assert step("TSA, Tiny-Shakespeare", "claimed") == pytest.approx(-0.228, abs=5e-4)
    assert step("TSA, enwik8", "claimed") == pytest.approx(-0.139, abs=5e-4)
    assert step("TSA, Tiny-Shakespeare", "latency") == pytest.approx(110.7 / 113.2 - 1, abs=1e-3)
    assert step("BudgetFormer, DBpedia", "claimed") == pytest.approx(-0.915)
    assert step("BudgetFormer, Yelp Full", "FLOPs") == -0.201


def test_what_was_never_published_is_null_with_the_reason() -> None:
    for row in PUBLISHED:
        assert [found.step for found in row.steps] == list(STEPS)
        assert all(found.source for found in row.steps)
        assert step(row.name, "skipped") is None
        assert step(row.name, "energy") is None


def test_rows_by_method() -> None:
    assert {row.method for row in published(("tsa",))} == {"tsa"}
    assert published(METHODS) == PUBLISHED
    assert published(()) == ()
    with pytest.raises(EffauditError, match="no `tas` among the published methods"):
        published(("tas",))


def test_a_profile_names_them() -> None:
    profile = load_profile("demo")
    assert published(profile.reference) != ()
    with pytest.raises(EffauditError, match="no `tas` among the published methods"):
        validated(AuditProfile, {"models": ["dense"], "reference": ["tas"]}, "p")
