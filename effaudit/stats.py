"""How sure a figure is: medians, percentiles and bootstrap intervals of samples.

A statistic that the samples cannot carry is None; `too_few` gives the reason in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import atan, cos, inf, pi, sin, sqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NOISY_IQR = 0.10  # IQR / median above which torch.utils.benchmark warns of interference
VERY_NOISY_IQR = 0.25  # above which it says that the figures are not usable
MIN_INTERVAL_SAMPLES = 5  # a bootstrap of fewer resamples the same few values
N_RESAMPLES = 1000  # 95 % limits then vary by about 1 % of the width between seeds
MAX_KINDS = 256  # distinct pairs up to which counts are drawn instead of pairs, at any number of pairs
NOTHING_LEFT = 1e-9  # share of variance that a third column leaves: below it, a partial correlation means nothing
MAX_UNITS = 20_000  # pairs drawn one by one; of more, random groups are drawn, which changes the limits by < 1 %
LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A bootstrap interval around `value`, in the unit of the statistic."""

    value: float
    low: float
    high: float
    level: float = LEVEL

    @property
    def half_width(self) -> float:
        """Half the width relative to `value`."""
        return (self.high - self.low) / (2 * abs(self.value)) if self.value else float("inf")

    def excludes(self, point: float) -> bool:
        return not self.low <= point <= self.high


def median(samples: Sequence[float]) -> float | None:
    """The median; None without samples."""
    return float(np.median(samples)) if len(samples) else None


def needed_for(q: float) -> int:
    """How many samples the percentile `q` (0 to 100) needs so that one is expected beyond it: 20 for 95, 100 for 99."""
    return max(1, round(1 / (1 - q / 100))) if q < 100 else 1


def percentile(samples: Sequence[float], q: float) -> float | None:
    """The `q`-th percentile (0 to 100, linear between samples); None below `needed_for(q)` samples."""
    return float(np.percentile(samples, q)) if len(samples) >= needed_for(q) else None


def too_few(n: int, needed: int) -> str:
    """The reason that goes with a missing statistic."""
    return f"too few samples: {n}, at least {needed} are needed"


def relative_iqr(samples: Sequence[float]) -> float | None:
    """Interquartile range over median; None for fewer than MIN_INTERVAL_SAMPLES samples or a median of 0."""
    centre = median(samples)
    if len(samples) < MIN_INTERVAL_SAMPLES or not centre:
        return None
    low, high = np.percentile(samples, [25, 75])
    return float(high - low) / centre


def median_interval(samples: Sequence[float], seed: int = 0) -> Interval | None:
    """Percentile-bootstrap interval of the median; None for fewer than MIN_INTERVAL_SAMPLES samples."""
    if len(samples) < MIN_INTERVAL_SAMPLES:
        return None
    values: Floats = np.asarray(samples, dtype=np.float64)
    medians: Floats = np.median(values[_resamples(len(values), seed)], axis=1)
    return _interval(float(np.median(values)), medians)


def ratio_interval(before: Sequence[float], after: Sequence[float], seed: int = 0) -> Interval | None:
    """Interval of median(after) / median(before), samples paired by index (same batch, same round).

    Pairs are drawn together, so that what moves both samples of a pair alike cancels. None for fewer
    than MIN_INTERVAL_SAMPLES pairs, a `before` that is not positive or a ratio beyond the range of floats;
    samples beyond the shorter sequence are left out.
    """
    n = min(len(before), len(after))
    first: Floats = np.asarray(before[:n], dtype=np.float64)
    second: Floats = np.asarray(after[:n], dtype=np.float64)
    if n < MIN_INTERVAL_SAMPLES or first.min() <= 0:
        return None
    drawn = _resamples(n, seed)
    with np.errstate(over="ignore"):
        ratios: Floats = np.median(second[drawn], axis=1) / np.median(first[drawn], axis=1)
        ratio = float(np.median(second) / np.median(first))
    return _interval(ratio, ratios) if np.isfinite(ratios).all() else None


@dataclass(frozen=True)
class PairedChange:
    """How the mean over the same examples changed: after - before, and after / before (None around a zero base)."""

    difference: Interval
    ratio: Interval | None


def paired_change(before: Floats, after: Floats, weights: Floats, seed: int = 0) -> PairedChange | None:
    """Bootstrap intervals of the change of a weighted mean, examples drawn together with both of their values.

    Examples without weight or with a missing value are left out. None for fewer than MIN_INTERVAL_SAMPLES.
    """
    pairs = np.stack([before, after, weights], axis=1)
    pairs = pairs[~np.isnan(pairs).any(axis=1) & (weights > 0)]
    if len(pairs) < MIN_INTERVAL_SAMPLES:
        return None
    sums = np.stack([pairs[:, 0] * pairs[:, 2], pairs[:, 1] * pairs[:, 2], pairs[:, 2]], axis=1)
    drawn = _resampled_sums(sums, np.random.default_rng(seed))
    first, second = drawn[:, 0] / drawn[:, 2], drawn[:, 1] / drawn[:, 2]
    total = sums.sum(axis=0)
    old, new = float(total[0] / total[2]), float(total[1] / total[2])
    ratio = _interval(new / old, second / first) if first.min() > 0 else None
    return PairedChange(_interval(new - old, second - first), ratio)


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's rho of two columns, and what is left of it where a third is held fixed; `n` rows."""

    rho: Interval
    given: Interval | None
    n: int


def ranks(values: Floats) -> Floats:
    """From 0 on; equal values share the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    first = np.cumsum(counts) - counts
    shared: Floats = (first + (counts - 1) / 2)[places.ravel()]
    return shared


def rank_correlation(x: Floats, y: Floats, z: Floats | None = None, seed: int = 0) -> RankCorrelation | None:
    """Spearman's rho of `x` and `y`, and its partial form given `z`, with bootstrap intervals.

    Rows with a missing value are left out. None for fewer than MIN_INTERVAL_SAMPLES rows or a column that does not
    vary; the partial form is None where `z` does not vary or says all of a column. Ranks are those of all rows in
    every resample.
    """
    columns = [x, y] if z is None else [x, y, z]
    known = ~np.isnan(np.stack(columns)).any(axis=0)
    parts = [ranks(column[known]) for column in columns]
    if known.sum() < MIN_INTERVAL_SAMPLES or any(np.ptp(part) == 0 for part in parts[:2]):
        return None
    centred = np.stack([part - part.mean() for part in parts], axis=1)
    k = len(parts)
    products = [centred[:, i] * centred[:, j] for i in range(k) for j in range(i, k)]
    rows = np.stack([np.ones(len(centred)), *centred.T, *products], axis=1)
    drawn = np.concatenate([rows.sum(axis=0)[None], _resampled_sums(rows, np.random.default_rng(seed))])
    rho = _correlations(drawn, k, 0, 1)
    whole = _interval(float(rho[0]), rho[1:])
    if z is None or np.ptp(parts[2]) == 0:
        return RankCorrelation(whole, None, int(known.sum()))
    with_x, with_y = _correlations(drawn, k, 0, 2), _correlations(drawn, k, 1, 2)
    left = (1 - with_x**2) * (1 - with_y**2)
    if left[0] < NOTHING_LEFT:
        return RankCorrelation(whole, None, int(known.sum()))
    partial = (rho - with_x * with_y) / np.sqrt(np.maximum(left, NOTHING_LEFT))
    return RankCorrelation(whole, _interval(float(partial[0]), np.clip(partial[1:], -1, 1)), int(known.sum()))


def _correlations(sums: Floats, k: int, i: int, j: int) -> Floats:
    """Pearson's r of columns `i` and `j` of `k`, from sums of 1, the columns, and their products."""

    def of(a: int, b: int) -> Floats:
        place = 1 + k + a * k - a * (a - 1) // 2 + (b - a)
        covariance: Floats = sums[:, place] / sums[:, 0] - sums[:, 1 + a] * sums[:, 1 + b] / sums[:, 0] ** 2
        return covariance

    spread = np.sqrt(np.maximum(of(i, i) * of(j, j), 0))
    r: Floats = np.divide(of(i, j), spread, out=np.zeros_like(spread), where=spread > 0)
    return r


def _resampled_sums(rows: Floats, random: np.random.Generator) -> Floats:
    """(N_RESAMPLES, columns) sums of as many rows as there are, drawn with replacement."""
    kinds, counts = np.unique(rows, axis=0, return_counts=True)
    if len(kinds) <= MAX_KINDS:
        drawn: Floats = random.multinomial(len(rows), counts / len(rows), size=N_RESAMPLES) @ kinds
        return drawn
    if len(rows) > MAX_UNITS:
        order = random.permutation(len(rows))
        rows = np.add.reduceat(rows[order], np.arange(MAX_UNITS) * len(rows) // MAX_UNITS)
    draws = (np.bincount(random.integers(0, len(rows), len(rows)), minlength=len(rows)) for _ in range(N_RESAMPLES))
    return np.stack([counts @ rows for counts in draws])


def _resamples(n: int, seed: int) -> NDArray[np.int64]:
    """(N_RESAMPLES, n) indices drawn with replacement; the same for the same seed."""
    return np.random.default_rng(seed).integers(0, n, size=(N_RESAMPLES, n))


def _interval(value: float, resampled: Floats) -> Interval:
    tail = 50 * (1 - LEVEL)
    low, high = np.percentile(resampled, [tail, 100 - tail])
    return Interval(value, float(low), float(high))


def student_quantile(p: float, df: int) -> float:
    """The quantile of Student's distribution for 0.5 < p < 1 and whole degrees of freedom."""
    low, high = 0.0, 1.0
    while _student_cdf(high, df) < p:
        high *= 2
        if high > 1e12:
            return inf
    for _ in range(80):  # halves the bracket beyond the last digit
        middle = (low + high) / 2
        low, high = (middle, high) if _student_cdf(middle, df) < p else (low, middle)
    return high


def _student_cdf(t: float, df: int) -> float:
    """For t >= 0, by the finite series of Abramowitz and Stegun 26.7.3 and 26.7.4."""
    angle = atan(t / sqrt(df))
    square = cos(angle) ** 2
    term, total = (1.0, 1.0) if df % 2 == 0 else (cos(angle), cos(angle))
    first = 1 if df % 2 == 0 else 2
    for k in range(first, df - 2, 2):
        term *= square * k / (k + 1)
        total += term
    if df % 2 == 0:
        return 0.5 + sin(angle) * total / 2
    return 0.5 + (angle + (sin(angle) * total if df > 1 else 0.0)) / pi
