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


def test_coverage_of_the_interval_is_near_its_level():
    random = np.random.default_rng(7)
    hits = 0
    for _ in range(100):
        interval = stats.median_interval([float(x) for x in random.exponential(1, 60)])
        hits += not interval.excludes(np.log(2))
    assert 85 <= hits <= 100


def test_relative_iqr_of_a_uniform_ladder():
    assert stats.relative_iqr([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2 / 3)
