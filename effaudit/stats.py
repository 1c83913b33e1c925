"""How sure a figure is: medians, percentiles and bootstrap intervals of samples.

A statistic that the samples cannot carry is None; `too_few` gives the reason in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NOISY_IQR = 0.10  # IQR / median above which torch.utils.benchmark warns of interference
VERY_NOISY_IQR = 0.25  # above which it says that the figures are not usable
MIN_INTERVAL_SAMPLES = 5  # a bootstrap of fewer resamples the same few values
N_RESAMPLES = 1000  # 95 % limits then vary by about 1 % of the width between seeds
MAX_KINDS = 256  # distinct pairs up to which counts are drawn instead of pairs, at any number of pairs
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
    than MIN_INTERVAL_SAMPLES pairs or a `before` that is not positive; samples beyond the shorter
    sequence are left out.
    """
    n = min(len(before), len(after))
    first: Floats = np.asarray(before[:n], dtype=np.float64)
    second: Floats = np.asarray(after[:n], dtype=np.float64)
    if n < MIN_INTERVAL_SAMPLES or first.min() <= 0:
        return None
    drawn = _resamples(n, seed)
    ratios: Floats = np.median(second[drawn], axis=1) / np.median(first[drawn], axis=1)
    return _interval(float(np.median(second) / np.median(first)), ratios)


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
