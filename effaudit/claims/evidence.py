"""What the audits of one profile found, by seed: figures over seeds with their intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from effaudit import comparison, stats, units
from effaudit.ladder import ladder
from effaudit.record import AuditRecord

# share: 0.1 is 10 %. change: of a ratio, -0.1 is 10 % less. points: a difference of two shares. plain: as it is.
Scale = Literal["share", "change", "points", "plain"]
MIN_SEEDS = 3  # fewer are an anecdote, and Student's interval of two tells nothing
Records = Mapping[str, AuditRecord]  # of one seed, by the model's name
Figure = Callable[[Records], float | None]


@dataclass(frozen=True)
class Estimate:
    """The mean of a figure over `n` seeds with its 95 % interval, which fewer than MIN_SEEDS do not have."""

    value: float
    interval: tuple[float, float] | None
    n: int
    scale: Scale

    def __str__(self) -> str:
        if self.scale == "plain":
            shown, ends = units.number(self.value), None
            ends = None if self.interval is None else "[{}, {}]".format(*(units.number(end) for end in self.interval))
        else:
            write = {"share": units.percent, "change": units.signed_percent, "points": units.points}[self.scale]
            shown = write(self.value)
            ends = None if self.interval is None else units.interval(*self.interval)
        return shown if ends is None else f"{shown} {ends}"


@dataclass(frozen=True)
class Evidence:
    """The records of a profile's audits by seed; those of one model untrained, or under soft gates, lie beside its own
    under `untrained` and `soft` of its name."""

    by_seed: Mapping[int, Records]

    def over_seeds(self, figure: Figure, scale: Scale) -> Estimate | None:
        """The mean of what the seeds say, with Student's interval; None where no seed says anything."""
        return mean_of([figure(records) for records in self.by_seed.values()], scale)

    def paired(self, before: str, after: str, name: str, scale: Scale) -> Estimate | None:
        """How a figure of quality differs between two models, seed by seed and example by example.

        A ratio less one for the scale `change`, else the difference. The interval is no narrower than that of the
        mean over seeds, nor than that of examples drawn anew. None where no seed has both models.
        """
        figure = change if scale == "change" else difference
        estimate = self.over_seeds(lambda records: figure(records, before, after, name), scale)
        if estimate is None or estimate.interval is None:
            return estimate
        common = [records for records in self.by_seed.values() if before in records and after in records]
        delta = comparison.compare_measurement(_with_twins(common, before), _with_twins(common, after), name)
        drawn = delta.interval if scale == "change" else delta.difference
        if drawn is None:
            return estimate
        shift = 1.0 if scale == "change" else 0.0
        low, high = estimate.interval
        return replace(estimate, interval=(min(low, drawn[0] - shift), max(high, drawn[1] - shift)))


def soft(model: str) -> str:
    """The name of a model's record under soft gates."""
    return f"{model} (soft)"


def untrained(model: str) -> str:
    """The name of a model's record before training."""
    return f"{model} (untrained)"


def mean_of(found: Iterable[float | None], scale: Scale) -> Estimate | None:
    """The mean of one value a seed, those that have none left out."""
    values = [value for value in found if value is not None]
    if not values:
        return None
    mean = float(np.mean(values))
    if len(values) < MIN_SEEDS:
        return Estimate(mean, None, len(values), scale)
    half = stats.student_quantile(0.975, len(values) - 1) * float(np.std(values, ddof=1)) / len(values) ** 0.5
    ends = (mean - half, mean + half)
    return Estimate(mean, (max(ends[0], 0.0), min(ends[1], 1.0)) if scale == "share" else ends, len(values), scale)


def value(records: Records, model: str, name: str) -> float | None:
    """A measurement of a model; None where either is missing."""
    found = records[model].value(name) if model in records else None
    return None if found is None else float(found)


def change(records: Records, before: str, after: str, name: str) -> float | None:
    """A measurement of one model against another's, as a ratio less one."""
    old, new = value(records, before, name), value(records, after, name)
    return None if not old or new is None else new / old - 1


def difference(records: Records, before: str, after: str, name: str) -> float | None:
    """A measurement of one model less another's."""
    old, new = value(records, before, name), value(records, after, name)
    return None if old is None or new is None else new - old


def claimed(records: Records, model: str) -> float | None:
    """The share of token-layer operations or heads that the gates say is saved."""
    if model not in records:
        return None
    rung = ladder(records[model], list(records.values()))["claimed"]
    return None if rung.change is None else -rung.change


def interpolated(points: Sequence[tuple[float, float]], at: float) -> float | None:
    """The height at `at` of the line through points (x, y); None beyond their ends, and for fewer than two."""
    ordered = sorted(points)
    if len(ordered) < 2 or not ordered[0][0] <= at <= ordered[-1][0]:
        return None
    x, y = zip(*ordered, strict=True)
    return float(np.interp(at, x, y))


def _with_twins(by_seed: Sequence[Records], model: str) -> AuditRecord:
    first, *others = (records[model] for records in by_seed)
    return first.with_twins(others)
