"""When a growing sample has shown enough, at an error rate that holds over all looks at it.

The values are log ratios of times, one a session of fresh processes, so independent of each other. Each look
spends a part of ALPHA (Bonferroni over looks, as Lan and DeMets spend it over time), and its Student interval
covers the true mean but for that part; so whichever look a verdict comes at, it is wrong in at most ALPHA of
all cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, expm1, inf, log1p, sqrt
from typing import Literal

import numpy as np

from effaudit.stats import student_quantile

Finding = Literal["slower", "faster", "same"]

ALPHA = 0.01  # of all verdicts on equal revisions, at most this share is wrong
MIN_VALUES = 4  # Student's quantiles at these levels are useless below
LOOK_GROWTH = 1.25  # looks grow this far apart: each costs some of ALPHA


@dataclass(frozen=True)
class Look:
    """Relative change and its interval after `n` values; `finding` is None while it can still go either way."""

    n: int
    change: float
    low: float
    high: float
    finding: Finding | None


@dataclass
class SequentialTest:
    """Is the mean beyond `tolerance` (relative, on both sides), or surely within it?"""

    tolerance: float
    alpha: float = ALPHA
    values: list[float] = field(default_factory=list)
    _spent: float = 0.0  # of alpha, as a share
    _next: int = MIN_VALUES

    def add(self, value: float) -> None:
        self.values.append(value)

    def look(self, elapsed: float, is_last: bool = False) -> Look | None:
        """The look that is due when a share `elapsed` of the time allowed is over; None where none is.

        The last look is always due, and spends what is left.
        """
        n = len(self.values)
        if n < MIN_VALUES or (n < self._next and not is_last):
            return None
        share = 1.0 if is_last else min(1.0, elapsed)
        alpha, self._spent = self.alpha * (share - self._spent), max(share, self._spent)
        self._next = max(n + 1, int(n * LOOK_GROWTH))
        return _look(self.values, alpha, self.tolerance)


def _look(values: Sequence[float], alpha: float, tolerance: float) -> Look:
    n, mean = len(values), float(np.mean(values))
    error = float(np.std(values, ddof=1)) / sqrt(n)
    half = student_quantile(1 - alpha / 2, n - 1) * error if alpha > 0 else inf
    low, high = mean - half, mean + half
    margin = log1p(tolerance)
    finding: Finding | None = None
    if low > margin:
        finding = "slower"
    elif high < -margin:
        finding = "faster"
    elif -margin <= low and high <= margin:
        finding = "same"
    return Look(n, expm1(mean), expm1(low), exp(high) - 1 if high < 700 else inf, finding)
