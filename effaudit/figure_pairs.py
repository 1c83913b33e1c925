"""Whether a figure got worse than the accepted one, and whether that can be told at all."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, hypot, inf, log

from effaudit import units
from effaudit.comparison import (
    CHOSEN,
    MEMORY_TOLERANCE,
    OTHER_CHOICES,
    TIMED_UNITS,
    WORKLOAD_FREE,
    Z_95,
    Interval,
    workload_difference,
)
from effaudit.gate_rows import ACCEPT, MEND, GateRow, GateVerdict
from effaudit.summary import INPUT_BOUND, Figure, Summary

# Another machine rounds otherwise, and what stood at a threshold goes the other way.
ROUTED_TOLERANCE = 0.001
QUALITY_TOLERANCE = 0.005  # where no standard error is known; rounding in another kernel flips single examples
DENSE = "flops.dense"  # how the names of figures begin that no decision changes

FIXED_PASSES = "give the model a `micro_batch` of its own in the profile, so that both sides take the same"
QUIET = "repeat it on a quiet machine, or leave time out of the gate"
SAME_MACHINE = "gate it on the machine of the baseline, or leave it out; `--against REV` times both in one job"


@dataclass(frozen=True)
class Obstacle:
    """Why two figures cannot be compared, and what to do; `is_excused` where nobody asked for them to be."""

    why: str
    hint: str
    is_excused: bool = False


@dataclass(frozen=True)
class FigurePair:
    """A figure on both sides; `asked` is the tolerance that a user named for it."""

    old: Summary
    new: Summary
    before: Figure
    after: Figure | None
    asked: float | None = None

    @property
    def _known(self) -> Figure:
        """The side that has a value, the baseline's rather."""
        return self.after if self.before.value is None and self.after is not None else self.before

    @property
    def is_counted(self) -> bool:
        return self._known.source == "counted"

    @property
    def is_timed(self) -> bool:
        return not self.is_counted and self._known.unit in TIMED_UNITS

    @property
    def tokens_per_pass(self) -> tuple[int | None, int | None]:
        return self.old.tokens_per_pass, self.new.tokens_per_pass

    @property
    def is_of_other_passes(self) -> bool:
        """Whether memory was measured on parts of a batch of another size, which `micro_batch: auto` chose by time."""
        before, after = self.tokens_per_pass
        return self.before.unit == "B" and not self.is_counted and before != after

    @property
    def is_gated(self) -> bool:
        """Whether it is judged: asked for, or one of those that are without being asked for."""
        if self.asked is not None:
            return True
        is_judgeable = self.before.better != "neither" and not self.is_timed
        return is_judgeable and (self.is_counted or self.before.is_quality or self.before.unit == "B")

    @property
    def is_elsewhere(self) -> bool:
        return bool(self.old.machine.difference(self.new.machine))

    @property
    def tolerance(self) -> float:
        """How much worse the figure may get, relative; of a quality the interval of its change."""
        if self.asked is not None:
            return self.asked
        if self.is_counted:
            return ROUTED_TOLERANCE if self.is_elsewhere and self.old.is_routed else 0.0
        return self._quality_tolerance if self.before.is_quality else MEMORY_TOLERANCE

    @property
    def _quality_tolerance(self) -> float:
        """1.96 standard errors of the difference, unpaired; a side that has none is taken to be as the other."""
        errors = [f.standard_error for f in (self.before, self.after) if f is not None and f.standard_error is not None]
        if not errors or not self.before.value:
            return QUALITY_TOLERANCE
        return Z_95 * hypot(errors[0], errors[-1]) / abs(self.before.value)

    @property
    def change(self) -> float | None:
        """Relative change; None for a missing value, infinite from zero and beyond the range of floats."""
        before, after = self.before.value, self.after.value if self.after else None
        if before is None or after is None:
            return None
        try:
            return (after - before) / abs(before)
        except (OverflowError, ZeroDivisionError):
            return 0.0 if before == after else inf if after > before else -inf

    def row(self, verdict: GateVerdict, why: str, hint: str = "", interval: Interval | None = None) -> GateRow:
        change = self.change
        return GateRow(
            model=self.new.model,
            measurement=self.before.name,
            unit=self.before.unit,
            baseline=self.before.value,
            current=self.after.value if self.after else None,
            change=change if change is not None and abs(change) < inf else None,
            interval=interval,
            tolerance=self.tolerance,
            verdict=verdict,
            why=why,
            hint=hint,
        )


def judge_pair(pair: FigurePair) -> GateRow:
    obstacle = _obstacle(pair)
    if obstacle is not None:
        verdict: GateVerdict = "skipped" if obstacle.is_excused and pair.asked is None else "undecided"
        return pair.row(verdict, obstacle.why, obstacle.hint)
    change, interval = pair.change, _interval(pair) if pair.is_timed else None
    assert change is not None
    low, high = interval or (change, change)
    verdict, why = _verdict(low, high, pair)
    if verdict == "regressed" and pair.is_of_other_passes:
        passes = " and ".join(f"{n} tokens" if n else "a batch" for n in pair.tokens_per_pass)
        return pair.row("undecided", f"{why}, in passes of {passes}", FIXED_PASSES)
    hint = {"regressed": MEND, "undecided": "time more rounds, or accept more"}.get(verdict, "")
    return pair.row(verdict, f"{why}{_manner(pair)}", hint, interval)


def _obstacle(pair: FigurePair) -> Obstacle | None:
    before, after, old, new = pair.before, pair.after, pair.old, pair.new
    if before.value is None:
        return Obstacle(f"unavailable in the baseline: {before.reason}", ACCEPT, is_excused=True)
    if after is None:
        return Obstacle(
            "not among the current figures", "run the meter that gives it (--meters), or update the baseline"
        )
    if after.unit != before.unit:
        return Obstacle(f"in {before.unit} in the baseline and {after.unit} now", ACCEPT)
    if after.value is None:
        return Obstacle(f"unavailable: {after.reason}", "`effaudit doctor` says what can be measured here")
    if before.name not in WORKLOAD_FREE and (difference := workload_difference(old, new)):
        return Obstacle(difference, f"audit the workload of the baseline, or {ACCEPT}")
    if _needs_same_weights(pair) and (old.weights_sha256, old.seed) != (new.weights_sha256, new.seed):
        why = f"other weights: {old.weights} in the baseline, {new.weights} now"
        return Obstacle(why, _weights_hint(pair))
    if before.name in CHOSEN and old.choices and new.choices and old.choices != new.choices:
        return Obstacle(OTHER_CHOICES, "gate with `execution: skip`, which counts alike everywhere", is_excused=True)
    if not pair.is_counted and not before.is_quality and pair.is_elsewhere:
        return Obstacle(old.machine.difference(new.machine), SAME_MACHINE, is_excused=True)
    return _timing_obstacle(before, after) if pair.is_timed else None


def _weights_hint(pair: FigurePair) -> str:
    is_told = pair.before.is_quality or any(s.get(name) for s in (pair.old, pair.new) for name in INPUT_BOUND)
    if is_told:
        return f"audit with the weights of the baseline, or {ACCEPT}"
    return "add `routing` to the meters, which tells whether weights decide what runs, and update the baseline"


def _needs_same_weights(pair: FigurePair) -> bool:
    name = pair.before.name
    return pair.before.is_quality or (pair.old.is_routed and name not in WORKLOAD_FREE and not name.startswith(DENSE))


def _timing_obstacle(before: Figure, after: Figure) -> Obstacle | None:
    for figure, where in ((before, "in the baseline"), (after, "now")):
        if figure.is_unstable:
            return Obstacle(f"timed on a busy or unsteady machine {where}", QUIET)
    for figure, where in ((before, "in the baseline"), (after, "now")):
        if figure.interval is None:
            return Obstacle(f"no interval {where}: {figure.reason}", "time more rounds, or leave it out of the gate")
        if min(figure.interval) <= 0:
            return Obstacle(f"not above zero {where}", "leave it out of the gate")
    return None


def _interval(pair: FigurePair) -> Interval:
    """The 95 % interval of the change of a timed figure, from those of both sides (Zou and Donner 2008), on logs."""
    assert pair.after is not None
    assert pair.before.interval is not None
    assert pair.after.interval is not None
    (below_1, above_1), (below_2, above_2) = (_log_spread(figure) for figure in (pair.before, pair.after))
    assert pair.before.value
    assert pair.after.value
    ratio = pair.after.value / pair.before.value
    return ratio * exp(-hypot(below_2, above_1)) - 1, ratio * exp(hypot(above_2, below_1)) - 1


def _log_spread(figure: Figure) -> tuple[float, float]:
    """How far the interval reaches below and above the value, as logs of ratios."""
    assert figure.value is not None
    assert figure.interval is not None
    low, high = figure.interval
    return max(0.0, log(figure.value / low)), max(0.0, log(high / figure.value))


def _verdict(low: float, high: float, pair: FigurePair) -> tuple[GateVerdict, str]:
    """The verdict on a change known to lie between `low` and `high` (equal for an exact one)."""
    tolerance = pair.tolerance
    accepted = f"{_percent(tolerance) if tolerance else 'nothing'} is accepted"
    if pair.before.better == "neither":
        if max(abs(low), abs(high)) > tolerance:
            return "regressed", f"changed by {_shown(low, high)}, {accepted} either way"
        return "pass", "within its tolerance"
    if pair.before.better == "higher":
        low, high = -high, -low  # so that more is worse from here on
    if low > tolerance:
        return "regressed", f"{_shown(low, high)} worse, {accepted}"
    if high > tolerance:
        return "undecided", f"between {_percent(low)} and {_percent(high)} worse, {accepted}"
    if high < -tolerance:
        return "improved", f"{_shown(-high, -low)} better"
    return "pass", "as the baseline" if low == high == 0 else "within its tolerance"


def _shown(low: float, high: float) -> str:
    return _percent(low) if low == high else f"{_percent(low)} to {_percent(high)}"


def _percent(share: float) -> str:
    """Two decimals, more where there are none to see."""
    if share == inf:
        return "infinitely"
    if share and abs(share) < 5e-5:
        return f"{100 * share:.1e} %"
    return units.percent(share, 2)


def _manner(pair: FigurePair) -> str:
    if pair.is_timed:
        return " (unpaired, 95 %)"
    return " (unpaired, 95 %)" if pair.before.is_quality and pair.asked is None else ""
