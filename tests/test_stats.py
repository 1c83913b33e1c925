"""Statistics against closed formulas and their own definitions."""

import numpy as np
import pytest

from effaudit import stats


def test_percentiles_need_one_sample_beyond():
    assert stats.needed_for(95) == 20
    assert stats.needed_for(99) == 100
    assert stats.percentile([1.0] * 19, 95) is None
    assert stats.percentile([float(i) for i in range(101)], 95) == 95.0
    assert stats.too_few(19, 20) == "too few samples: 19, at least 20 are needed"


def test_no_statistic_from_one_sample():
    assert stats.median([]) is None
    assert stats.median([2.0]) == 2.0
    assert stats.median_interval([2.0]) is None
    assert stats.ratio_interval([2.0], [1.0]) is None
    assert stats.relative_iqr([2.0]) is None


def test_interquartile_range_over_the_median():
    assert stats.relative_iqr([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx((4 - 2) / 3)
    assert stats.relative_iqr([-1.0, -1.0, 0.0, 1.0, 1.0]) is None


def test_interval_of_the_median_covers_it_and_repeats():
    samples = [float(x) for x in np.random.default_rng(1).normal(10, 1, 200)]
    interval = stats.median_interval(samples)
    assert interval == stats.median_interval(samples)
    assert interval.low < interval.value < interval.high
    # asymptotic standard error of a normal sample's median: 1.2533 sigma / sqrt(n)
    assert (interval.high - interval.low) / 2 == pytest.approx(1.96 * 1.2533 / 200**0.5, rel=0.4)
    assert interval.excludes(9.0)
    assert not interval.excludes(interval.value)


def test_pairing_takes_out_what_moves_both():
    drift = [1.0 + 0.1 * i for i in range(50)]
    interval = stats.ratio_interval(drift, [0.9 * x for x in drift])
    assert (interval.low, interval.high) == pytest.approx((0.9, 0.9))
    assert stats.ratio_interval([0.0] * 9, [1.0] * 9) is None
    assert stats.ratio_interval([5e-324] + [1.0] * 5, [1.0] + [0.0] * 5) is None


def test_coverage_of_the_interval_is_near_its_level():
    random = np.random.default_rng(7)
    hits = 0
    for _ in range(100):
        interval = stats.median_interval([float(x) for x in random.exponential(1, 60)])
        hits += not interval.excludes(np.log(2))
    assert 85 <= hits <= 100


def test_relative_iqr_of_a_uniform_ladder():
    assert stats.relative_iqr([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2 / 3)


def _half_width(interval: stats.Interval) -> float:
    return (interval.high - interval.low) / 2


@pytest.mark.parametrize("n", [500, 3000])
def test_paired_change_has_the_width_of_the_differences(n: int) -> None:
    random = np.random.default_rng(n)
    before = random.normal(2.0, 1.0, n)
    after = before + random.normal(0.1, 0.2, n)
    change = stats.paired_change(before, after, np.ones(n))
    assert change is not None
    assert change.difference.value == pytest.approx((after - before).mean())
    expected = 1.96 * (after - before).std() / n**0.5  # not the deviation of either, five times as wide
    assert _half_width(change.difference) == pytest.approx(expected, rel=0.12)
    assert change.ratio is not None
    assert change.ratio.value == pytest.approx(after.mean() / before.mean())
    assert change == stats.paired_change(before, after, np.ones(n))


def test_paired_change_of_right_and_wrong_answers_is_that_of_a_multinomial() -> None:
    right_both, lost, won, wrong_both = 700, 60, 20, 220
    before = np.repeat([1.0, 1.0, 0.0, 0.0], [right_both, lost, won, wrong_both])
    after = np.repeat([1.0, 0.0, 1.0, 0.0], [right_both, lost, won, wrong_both])
    change = stats.paired_change(before, after, np.ones(1000))
    assert change is not None
    variance = (lost + won) / 1000 - ((won - lost) / 1000) ** 2
    assert change.difference.value == pytest.approx(-0.04)
    assert _half_width(change.difference) == pytest.approx(1.96 * (variance / 1000) ** 0.5, rel=0.1)


def test_groups_of_many_pairs_give_the_interval_of_single_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(3)
    before, noise = random.normal(2.0, 1.0, 6000), random.normal(0.0, 0.3, 6000)
    single = stats.paired_change(before, before + noise, np.ones(6000))
    monkeypatch.setattr(stats, "MAX_UNITS", 1000)
    grouped = stats.paired_change(before, before + noise, np.ones(6000))
    assert single is not None
    assert grouped is not None
    assert grouped.difference.value == single.difference.value
    assert _half_width(grouped.difference) == pytest.approx(_half_width(single.difference), rel=0.12)


def test_examples_weigh_by_what_they_were_asked() -> None:
    before, after = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 5.0]), np.array([1.0, 1.0, 4.0, 8.0, 16.0, np.nan])
    change = stats.paired_change(before, after, np.array([0.0, 3.0, 1.0, 1.0, 1.0, 1.0]))
    assert change is None  # four answered both: too few
    change = stats.paired_change(before, np.nan_to_num(after, nan=5.0), np.array([0.0, 3.0, 1.0, 1.0, 1.0, 1.0]))
    assert change is not None
    assert change.difference.value == pytest.approx(-3 / 7)


def test_a_base_around_zero_has_no_ratio() -> None:
    change = stats.paired_change(np.zeros(10), np.ones(10), np.ones(10))
    assert change is not None
    assert (change.difference.low, change.difference.high, change.ratio) == (1.0, 1.0, None)


def test_coverage_of_the_paired_interval_is_near_its_level() -> None:
    random = np.random.default_rng(11)
    hits = 0
    for _ in range(100):
        before = random.exponential(1.0, 80)
        change = stats.paired_change(before, before + random.normal(0.05, 0.3, 80), np.ones(80))
        hits += change is not None and not change.difference.excludes(0.05)
    assert 86 <= hits <= 100


def test_ranks_share_the_mean_of_ties() -> None:
    assert stats.ranks(np.array([30.0, 10.0, 20.0, 10.0])).tolist() == [3.0, 0.5, 2.0, 0.5]


def test_rank_correlation_is_spearmans_and_its_partial_form() -> None:
    from scipy.stats import spearmanr

    random = np.random.default_rng(5)
    z = random.normal(size=300)
    x, y = z + random.normal(size=300), np.round(z + random.normal(size=300))  # with ties
    found = stats.rank_correlation(x, y, z)
    assert found is not None
    assert found.rho.value == pytest.approx(spearmanr(x, y).statistic)
    xy, xz, yz = (spearmanr(a, b).statistic for a, b in ((x, y), (x, z), (y, z)))
    assert found.given is not None
    assert found.given.value == pytest.approx((xy - xz * yz) / ((1 - xz**2) * (1 - yz**2)) ** 0.5)
    assert found.rho.low < found.rho.value < found.rho.high
    # Fisher: the standard error of artanh rho is about 1.03 / sqrt(n - 3) for ranks.
    width = np.arctanh(found.rho.high) - np.arctanh(found.rho.low)
    assert width / 2 == pytest.approx(1.96 * 1.03 / 297**0.5, rel=0.2)


def test_rank_correlation_needs_variation_and_whole_rows() -> None:
    x = np.arange(10.0)
    assert stats.rank_correlation(x, np.ones(10)) is None
    assert stats.rank_correlation(x[:4], x[:4]) is None
    holes = np.where(x < 6, np.nan, x)
    assert stats.rank_correlation(x, holes) is None
    found = stats.rank_correlation(x, -x, x)
    assert found is not None
    assert (found.rho.value, found.given, found.n) == (pytest.approx(-1), None, 10)
