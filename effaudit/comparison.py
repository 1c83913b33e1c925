"""How one record differs from another: a ratio, an interval and a verdict for each measurement."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import isfinite, log, sqrt
from typing import Literal, Protocol

import numpy as np

from effaudit import stats
from effaudit.example_table import INDEX, ExampleTable
from effaudit.record import AuditRecord, Better, Measurement, WorkloadInfo

CHOSEN = ("flops.executed", "macs.executed", "routing.tlops_saved")  # what follows the choices of `execution: auto`
OTHER_CHOICES = "`execution: auto` chose otherwise which layers skip"
Verdict = Literal["better", "worse", "same", "unsure", "not_comparable"]
Interval = tuple[float, float]

TIMED_UNITS = ("s", "1/s", "J", "W", "g")  # what varies from run to run and from machine to machine
WORKLOAD_FREE = ("params", "memory.weights")  # properties of the model alone
MEMORY_TOLERANCE = 0.05  # a peak read once moves by a few per cent with the allocator; also the gate's default
Z_95 = 1.96
# By task, the figure of quality that stands for a model: the first of these that its record has.
MAIN_QUALITY = {
    "classification": ("quality.accuracy", "quality.loss"),
    "causal_lm": ("quality.bpc", "quality.accuracy", "quality.loss"),
}
# The column of the per-example table that a figure is the mean of, and by what it is divided.
QUALITY_COLUMNS = {"quality.accuracy": ("correct", 1.0), "quality.loss": ("loss", 1.0), "quality.bpc": ("loss", log(2))}


class OnWorkload(Protocol):
    """A record, or what is kept of one."""

    @property
    def workload(self) -> WorkloadInfo: ...


@dataclass(frozen=True)
class Spread:
    """A figure over `n` seeds."""

    n: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Delta:
    """One measurement before and after; `ratio` is after / before, `interval` its 95 % interval.

    None where a value is unavailable or the ratio undefined; `reason` says why, or how the verdict came.
    `difference` is the paired 95 % interval of after - before over the examples that both records have. Where both
    have twins of other seeds, a figure of quality is the mean over them, and `seeds` says how the difference spreads.
    """

    name: str
    before: int | float | None
    after: int | float | None
    ratio: float | None
    interval: Interval | None
    verdict: Verdict
    reason: str
    difference: Interval | None = None
    seeds: Spread | None = None


def compare(before: AuditRecord, after: AuditRecord) -> tuple[Delta, ...]:
    """Every measurement of either record, in the order of `before`.

    Counted figures compare exactly; timed ones by intervals from their raw samples and only on the same
    machine; quality by example where the tables lie beside the records; nothing that depends on the input
    compares across workloads.
    """
    names = dict.fromkeys(m.name for record in (before, after) for m in record.measurements)
    return tuple(compare_measurement(before, after, name) for name in names)


def compare_measurement(before: AuditRecord, after: AuditRecord, name: str) -> Delta:
    """One measurement of `compare`."""
    old, new = before.get(name), after.get(name)
    obstacle = _obstacle(before, after, name)
    if obstacle or old is None or new is None or old.value is None or new.value is None:
        return Delta(name, before.value(name), after.value(name), None, None, "not_comparable", obstacle)
    paired = paired_change(before, after, name)
    if paired is not None:
        return _paired_delta(before, after, new, paired)
    ratio = ratio_of(old.value, new.value)
    # Under other tokenizers the batches are not the same: their samples do not pair.
    is_paired = before.workload.tokenizer == after.workload.tokenizer
    interval = ratio_interval(old, new, before.workload.n_examples, is_paired)
    verdict, reason = _verdict(old, new, ratio, interval)
    return Delta(name, old.value, new.value, ratio, interval, verdict, reason)


def over_seeds(record: AuditRecord, name: str) -> Spread | None:
    """A measurement over the seeds that the profile names; None where there is one seed alone."""
    return _spread(record.values_by_seed(name))


def _spread(by_seed: dict[int, float]) -> Spread | None:
    values = list(by_seed.values())
    return Spread(len(values), sum(values) / len(values), min(values), max(values)) if len(values) > 1 else None


def _paired_delta(before: AuditRecord, after: AuditRecord, new: Measurement, paired: stats.PairedChange) -> Delta:
    old_by_seed, new_by_seed = before.values_by_seed(new.name), after.values_by_seed(new.name)
    common = [seed for seed in old_by_seed if seed in new_by_seed]
    old_value, new_value = before[new.name].value or 0, new.value or 0
    if len(common) > 1:
        old_value = sum(old_by_seed[seed] for seed in common) / len(common)
        new_value = sum(new_by_seed[seed] for seed in common) / len(common)
    seeds = _spread({seed: new_by_seed[seed] - old_by_seed[seed] for seed in common})
    verdict, reason = _paired_verdict(new_value - old_value, new.better, paired.difference, seeds)
    span = None if paired.ratio is None else (paired.ratio.low, paired.ratio.high)
    difference = (paired.difference.low, paired.difference.high)
    ratio = ratio_of(old_value, new_value)
    return Delta(new.name, old_value, new_value, ratio, span, verdict, reason, difference, seeds)


def paired_change(before: AuditRecord, after: AuditRecord, name: str) -> stats.PairedChange | None:
    """How a figure of quality changed over the same examples; None without the tables of both records.

    Examples are those that both have, each the mean over the seeds that both have. Tokens of two tokenizers do not
    pair.
    """
    old, new = before.tables_by_seed(), after.tables_by_seed()
    is_alike = after.workload.task == "classification" or before.workload.tokenizer == after.workload.tokenizer
    if name not in QUALITY_COLUMNS or not old or not new or not is_alike:
        return None
    column, unit = QUALITY_COLUMNS[name]
    pairs = [(old[seed], new[seed]) for seed in old if seed in new]
    change = _paired(tuple(pairs or [(next(iter(old.values())), next(iter(new.values())))]), column)
    if change is None or unit == 1:
        return change
    scaled = stats.Interval(
        *(end / unit for end in (change.difference.value, change.difference.low, change.difference.high))
    )
    return stats.PairedChange(scaled, change.ratio)


@lru_cache(maxsize=64)  # a report asks for the same pair in several places
def _paired(pairs: tuple[tuple[ExampleTable, ExampleTable], ...], column: str) -> stats.PairedChange | None:
    before, after = pairs[0]
    _, old, new = np.intersect1d(before[INDEX], after[INDEX], assume_unique=True, return_indices=True)
    weights = before["n_asked"] if "n_asked" in before else np.ones(len(before))
    first = np.mean([one[column][old] for one, _ in pairs], axis=0)
    second = np.mean([other[column][new] for _, other in pairs], axis=0)
    return stats.paired_change(first, second, weights[old])


def workload_difference(before: OnWorkload, after: OnWorkload) -> str:
    """Why two records did not see the same work, or an empty string."""
    old, new = before.workload, after.workload
    if (old.sha256, old.split) != (new.sha256, new.split):
        return f"another workload: {old.dataset}/{old.split} and {new.dataset}/{new.split} differ in content"
    same_tokens = old.tokenizer == new.tokenizer
    for field in ("n_examples", *(("n_tokens",) if same_tokens else ()), "batch_size"):
        if (a := getattr(old, field)) != (b := getattr(new, field)):
            return f"another workload: {field} {a} and {b}"
    return ""


def is_machine_bound(measurement: Measurement) -> bool:
    """Whether a figure says as much about the machine as about the model."""
    return measurement.unit in (*TIMED_UNITS, "B") and measurement.source != "counted"


def is_other_percentile(name: str) -> bool:
    """Whether a figure is a percentile other than the median, which raw samples give no interval of."""
    last = name.rpartition(".")[2]
    return last != "p50" and last[:1] == "p" and last[1:].isdigit()


def ratio_of(before: int | float, after: int | float) -> float | None:
    """after / before; None for a zero base and beyond the range of floats."""
    try:
        ratio = after / before
    except (ZeroDivisionError, OverflowError):
        return None
    return float(ratio) if isfinite(ratio) else None


def _obstacle(before: AuditRecord, after: AuditRecord, name: str) -> str:
    old, new = before.get(name), after.get(name)
    if old is None or new is None:
        return f"not measured {'before' if old is None else 'after'}"
    if old.unit != new.unit:
        return f"in {old.unit} before and {new.unit} after"
    if old.value is None:
        return f"unavailable before: {old.method}"
    if new.value is None:
        return f"unavailable after: {new.method}"
    if name not in WORKLOAD_FREE and (difference := workload_difference(before, after)):
        return difference
    if name in CHOSEN and before.choices and after.choices and before.choices != after.choices:
        return OTHER_CHOICES
    bound = is_machine_bound(old) or is_machine_bound(new)
    if bound and before.environment.fingerprint != after.environment.fingerprint:
        return "measured on different machines or settings"
    return ""


def _verdict(old: Measurement, new: Measurement, ratio: float | None, interval: Interval | None) -> tuple[Verdict, str]:
    if old.value == new.value:
        return "same", "equal"
    if new.better == "neither":
        return "unsure", "differs, and no direction is better"
    if old.source == new.source == "counted" and interval is None:
        return _direction(old, new), "counted exactly"
    if interval is not None:
        low, high = interval
        if low <= 1 <= high:
            return "unsure", "the 95 % interval of the ratio covers 1"
        return _direction(old, new), "the 95 % interval of the ratio leaves out 1"
    if new.unit == "B" and ratio is not None:
        if abs(ratio - 1) <= MEMORY_TOLERANCE:
            return "same", f"within {MEMORY_TOLERANCE:.0%}, what one reading of memory can move by"
        return _direction(old, new), f"beyond {MEMORY_TOLERANCE:.0%}, what one reading of memory can move by"
    return "unsure", "no interval: too few raw samples"


def _paired_verdict(
    difference: float, better: Better, interval: stats.Interval, seeds: Spread | None
) -> tuple[Verdict, str]:
    if difference == 0 and (seeds is None or seeds.low == seeds.high):
        return "same", "equal"
    if not interval.excludes(0):
        return "unsure", "not distinguishable: the paired 95 % interval of the difference covers zero"
    if seeds is not None and seeds.low <= 0 <= seeds.high:
        return "unsure", f"not distinguishable: the {seeds.n} seeds do not agree which is better"
    verdict: Verdict = "better" if (difference < 0) == (better == "lower") else "worse"
    return verdict, "the paired 95 % interval of the difference leaves out zero"


def _direction(old: Measurement, new: Measurement) -> Verdict:
    assert old.value is not None
    assert new.value is not None
    is_lower = new.value < old.value
    return "better" if is_lower == (new.better == "lower") else "worse"


def ratio_interval(before: Measurement, after: Measurement, n_examples: int, is_paired: bool = True) -> Interval | None:
    """The 95 % interval of after / before; None without enough raw samples.

    Accuracies, which have no raw samples, get the binomial interval over `n_examples`: unpaired, so too
    wide rather than too narrow, where `paired_change` has no tables. Percentiles other than the median get none.
    """
    if before.value is None or after.value is None or before.value <= 0:
        return None
    if before.name == "quality.accuracy":
        return _binomial_interval(float(before.value), float(after.value), n_examples)
    if is_other_percentile(before.name):
        return None
    if not is_paired or len(before.samples) != len(after.samples):
        return _unpaired_interval(before, after)
    # Models are timed in turns over the same batches: samples of one index belong together.
    found = stats.ratio_interval(before.samples, after.samples)
    return (found.low, found.high) if found is not None and isfinite(found.low + found.high) else None


def _unpaired_interval(before: Measurement, after: Measurement) -> Interval | None:
    """From the extremes of both intervals, so too wide rather than too narrow."""
    old, new = stats.median_interval(before.samples), stats.median_interval(after.samples)
    if old is None or new is None or old.low <= 0:
        return None
    return new.low / old.high, new.high / old.low


def _binomial_interval(before: float, after: float, n: int) -> Interval | None:
    if n < 1:
        return None
    half = Z_95 * sqrt((before * max(0.0, 1 - before) + after * max(0.0, 1 - after)) / n)
    return (after - half) / before, (after + half) / before
