"""Every relation of an interval to what is claimed, and every reason to withhold a verdict."""

from __future__ import annotations

import pytest

from effaudit.claims.evidence import Estimate
from effaudit.claims.verdict import Bounds, Verdict, finding


def estimate(low: float, high: float, n: int = 3) -> Estimate:
    return Estimate((low + high) / 2, (low, high), n, "share")


@pytest.mark.parametrize(
    ("bounds", "interval", "verdict"),
    [
        (Bounds(low=0.2), (0.2, 0.3), "holds"),
        (Bounds(low=0.2), (0.1, 0.19), "does not hold"),
        (Bounds(low=0.2), (0.1, 0.3), "cannot be told"),
        (Bounds(high=0.0), (-0.2, 0.0), "holds"),
        (Bounds(high=0.0), (0.01, 0.2), "does not hold"),
        (Bounds(high=0.0), (-0.01, 0.2), "cannot be told"),
        (Bounds(-0.1, 0.1), (-0.05, 0.1), "holds"),
        (Bounds(-0.1, 0.1), (0.2, 0.3), "does not hold"),
        (Bounds(-0.1, 0.1), (-0.3, 0.3), "cannot be told"),
    ],
)
def test_the_whole_interval_decides(bounds: Bounds, interval: tuple[float, float], verdict: Verdict) -> None:
    assert bounds.judge(estimate(*interval))[0] == verdict


def test_too_few_seeds_are_no_verdict_however_clear_they_are() -> None:
    assert Bounds(low=0.0).judge(estimate(0.8, 0.9, n=2)) == ("cannot be told", "2 of at least 3 seeds so far")
    alone = Estimate(0.9, None, 1, "share")
    assert Bounds(low=0.0).judge(alone) == ("cannot be told", "1 of at least 3 seeds so far")


def test_what_is_missing_says_why() -> None:
    row = finding("TSA", "skips", "table 1", Bounds(), ours=("skipped", None), theirs=("claimed", None), note="a note")
    assert (row.verdict, row.reason, row.n_seeds) == ("cannot be told", "not audited yet; a note", 0)
    assert (row.ours, row.theirs) == (None, None)


def test_a_row_says_what_its_figures_are_of() -> None:
    row = finding("TSA", "skips", "table 1", Bounds(low=0.1), ("skipped", estimate(0.2, 0.3)), ("claimed", None))
    assert row.ours == "skipped: 25.0 % [20.0, 30.0]"
    assert (row.verdict, row.reason, row.n_seeds) == ("holds", "", 3)
