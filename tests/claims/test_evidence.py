"""Figures over seeds against scipy, paired ones against their parts, lines against by hand."""

from __future__ import annotations

import pytest
from scipy import stats as scipy_stats

from effaudit.claims.evidence import Estimate, Evidence, change, claimed, difference, interpolated, mean_of, value
from effaudit.record import AuditRecord
from tests import fakes_records as fakes


def of_seed(seed: int, name: str, accuracy: float, right: list[int]) -> AuditRecord:
    """A record of that seed with a per-example table of `right`."""
    workload = fakes.WORKLOAD.model_copy(update={"n_examples": len(right)})
    made = fakes.record(
        name,
        measurements=[fakes.figure("quality.accuracy", accuracy, better="higher")],
        workload=workload,
        profile={"seed": seed},
    )
    return made.with_table(fakes.table(correct=right, n_asked=[1] * len(right)))


def test_the_mean_over_seeds_has_students_interval() -> None:
    values = [0.2, 0.5, 0.35, 0.4]
    found = mean_of([*values, None], "share")
    assert found is not None
    low, high = scipy_stats.t.interval(0.95, 3, loc=0.3625, scale=scipy_stats.sem(values))
    assert (found.n, found.value) == (4, pytest.approx(0.3625))
    assert found.interval == pytest.approx((low, high))


def test_a_share_ends_where_there_are_no_more() -> None:
    found = mean_of([0.99, 0.9, 1.0], "share")
    assert found is not None
    assert found.interval is not None
    assert found.interval[0] < 0.9
    assert found.interval[1] == 1.0


def test_too_few_seeds_have_no_interval_and_none_no_figure() -> None:
    assert mean_of([0.2, None], "share") == Estimate(0.2, None, 1, "share")
    assert mean_of([0.25, 0.75], "plain") == Estimate(0.5, None, 2, "plain")
    assert mean_of([None], "share") is None


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(0.25, None, 1, "share"), "25.0 %"),
        (Estimate(-0.1, (-0.2, 0.01), 3, "change"), "-10.0 % [-20.0, 1.0]"),
        (Estimate(0.013, (0.01, 0.016), 3, "points"), "+1.3 points [1.0, 1.6]"),
        (Estimate(0.42, (0.4, 0.44), 3, "plain"), "0.420 [0.400, 0.440]"),
    ],
)
def test_a_figure_is_written_by_its_scale(estimate: Estimate, text: str) -> None:
    assert str(estimate) == text


def test_quality_is_paired_by_seed_and_never_surer_than_its_examples() -> None:
    """All seeds agree exactly, so that what is unsure are the examples alone: one of ten got right more."""
    n = 40
    before, after = [1, 0] * (n // 2), [1, 0] * (n // 2 - 2) + [1, 1] * 2
    seeds = {
        seed: {"dense": of_seed(seed, "dense", 0.5, before), "tsa": of_seed(seed, "tsa", 0.55, after)}
        for seed in (0, 1, 2)
    }
    found = Evidence(seeds).paired("dense", "tsa", "quality.accuracy", "points")
    assert found is not None
    assert found.interval is not None
    assert found.value == pytest.approx(0.05)
    assert found.interval[0] <= 0.0
    assert 0.1 <= found.interval[1] < 0.2


def test_seeds_that_disagree_widen_the_interval() -> None:
    right = [1, 0] * 200
    seeds = {
        seed: {"dense": of_seed(seed, "dense", 0.5, right), "tsa": of_seed(seed, "tsa", accuracy, right)}
        for seed, accuracy in ((0, 0.4), (1, 0.5), (2, 0.6))
    }
    found = Evidence(seeds).paired("dense", "tsa", "quality.accuracy", "points")
    assert found is not None
    assert found.interval is not None
    assert found.interval[1] - found.interval[0] > 0.4


def test_what_is_missing_is_none() -> None:
    records = {record.model.name: record for record in fakes.everyone()}
    assert value(records, "nobody", "flops.executed") is None
    assert value(records, "dense", "emissions") is None
    assert change(records, "dense", "nobody", "flops.executed") is None
    assert difference(records, "nobody", "dense", "quality.accuracy") is None
    assert claimed(records, "nobody") is None
    assert Evidence({0: records}).paired("dense", "nobody", "quality.accuracy", "points") is None


def test_figures_of_two_models() -> None:
    records = {record.model.name: record for record in fakes.everyone()}
    assert change(records, "dense", "tsa", "flops.executed") == pytest.approx(0.699 - 1)
    assert difference(records, "dense", "tsa", "quality.accuracy") == pytest.approx(-0.003)
    assert claimed(records, "tsa") == pytest.approx(0.75 * 0.6)
    assert claimed(records, "budgetformer") == pytest.approx(0.69)


def test_a_line_is_read_between_its_ends_alone() -> None:
    line = [(0.4, 3.0), (0.0, 1.0), (0.2, 1.5)]
    assert interpolated(line, 0.1) == pytest.approx(1.25)
    assert interpolated(line, 0.3) == pytest.approx(2.25)
    assert interpolated(line, 0.5) is None
    assert interpolated(line[:1], 0.4) is None
