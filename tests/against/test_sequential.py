from math import exp, inf, log1p

import numpy as np
import pytest
from scipy import stats as scipy_stats

from effaudit.against import sequential
from effaudit.against.sequential import ALPHA, MIN_VALUES, Finding, SequentialTest, student_quantile


@pytest.mark.parametrize("df", [1, 2, 3, 4, 7, 30, 101])
@pytest.mark.parametrize("p", [0.6, 0.975, 0.9995, 0.999995])
def test_students_quantiles(p: float, df: int) -> None:
    assert student_quantile(p, df) == pytest.approx(scipy_stats.t.ppf(p, df), rel=1e-6)


def decided(values: list[float], tolerance: float) -> Finding | None:
    test = SequentialTest(tolerance)
    for value in values:
        test.add(value)
    look = test.look(1.0, is_last=True)
    assert look is not None
    assert look.low <= look.change <= look.high
    return look.finding


@pytest.mark.parametrize(
    ("ratio", "finding"),
    [(1.05, "slower"), (0.95, "faster"), (1.0, "same"), (1.005, "same"), (1.0102, None), (0.9898, None)],
)
def test_a_verdict_is_said_once_the_interval_leaves_no_other(ratio: float, finding: Finding | None) -> None:
    noise = [0.001, -0.001, 0.0005, -0.0005, 0.0, 0.001, -0.001, 0.0]
    assert decided([log1p(ratio - 1) + part for part in noise], 0.01) == finding


def test_too_few_values_and_equal_ones() -> None:
    test = SequentialTest(0.01)
    for _ in range(MIN_VALUES - 1):
        test.add(0.05)
    assert test.look(1.0, is_last=True) is None
    test.add(0.05)
    look = test.look(1.0, is_last=True)
    assert look is not None
    assert (look.n, look.finding) == (MIN_VALUES, "slower")
    assert look.low == pytest.approx(exp(0.05) - 1)


def test_all_looks_together_spend_what_one_may(monkeypatch: pytest.MonkeyPatch) -> None:
    spent: list[float] = []

    def quantile(p: float, df: int) -> float:
        spent.append(2 * (1 - p))
        return inf

    monkeypatch.setattr(sequential, "student_quantile", quantile)
    test = SequentialTest(0.01)
    looked_at = []
    for n in range(1, 31):
        test.add(float(n % 3))
        look = test.look(n / 40)
        looked_at += [look.n] if look else []
    assert looked_at == [4, 5, 6, 7, 8, 10, 12, 15, 18, 22, 27]  # ever more rarely
    assert sum(spent) == pytest.approx(ALPHA * 27 / 40)
    assert test.look(0.9, is_last=True) is not None
    assert sum(spent) == pytest.approx(ALPHA)
    assert test.look(1.0, is_last=True) is not None  # nothing is left: an interval that leaves all open
    assert sum(spent) == pytest.approx(ALPHA)


@pytest.mark.parametrize("kind", ["normal", "heavy tails", "bursts"])
def test_false_alarms_stay_below_their_rate_whatever_the_noise(kind: str) -> None:
    """Without a tolerance, every verdict on equal sides is wrong: at most ALPHA of them, looked at after each value."""
    random = np.random.default_rng(3)

    def noise() -> float:
        if kind == "normal":
            return float(random.normal(0, 0.01))
        if kind == "heavy tails":
            return float(random.standard_t(2) * 0.01)
        return float(random.normal(0, 0.1 if random.random() < 0.1 else 0.005))

    quantiles: dict[tuple[float, int], float] = {}
    n_runs, n_sessions, n_wrong = 600, 16, 0
    original = sequential.student_quantile

    def remembered(p: float, df: int) -> float:
        return quantiles.setdefault((p, df), quantiles.get((p, df)) or original(p, df))

    sequential.student_quantile = remembered
    try:
        for _ in range(n_runs):
            test = SequentialTest(0.0)
            for n in range(1, n_sessions + 1):
                test.add(noise())
                look = test.look(n / n_sessions, is_last=n == n_sessions)
                if look is not None and look.finding is not None:
                    n_wrong += 1
                    break
    finally:
        sequential.student_quantile = original
    assert n_wrong <= 15  # 6 are expected; more than 15 come once in a thousand times
