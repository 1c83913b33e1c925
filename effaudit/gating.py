"""Whether current records are costlier than a baseline: one verdict a measurement, one exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from effaudit.comparison import (
    MEMORY_TOLERANCE,
    TIMED_UNITS,
    WORKLOAD_FREE,
    compare_measurement,
    is_machine_bound,
    workload_difference,
)
from effaudit.errors import EffauditError, unknown_name
from effaudit.record import AuditRecord, Measurement

GateVerdict = Literal["pass", "improved", "regressed", "undecided"]

QUALITY_TOLERANCE = 0.005  # rounding in another kernel flips single examples; half a per cent is no such thing

_NEXT_STEPS: Mapping[GateVerdict, str] = {
    "regressed": "mend it, or accept it by updating the baseline",
    "undecided": "time more rounds",
}


@dataclass(frozen=True)
class GateRow:
    """One measurement of one model; `change` is current / baseline - 1, `tolerance` how much worse is accepted.

    `why` says how the verdict came about, `hint` what to do about it.
    """

    model: str
    measurement: str
    unit: str
    baseline: int | float | None
    current: int | float | None
    change: float | None
    tolerance: float | None
    verdict: GateVerdict
    why: str
    hint: str = ""


@dataclass(frozen=True)
class GateResult:
    rows: tuple[GateRow, ...]

    @property
    def exit_code(self) -> int:
        """1 for a regression, else 2 where something is undecided or nothing was compared, else 0."""
        verdicts = {row.verdict for row in self.rows}
        if "regressed" in verdicts:
            return 1
        return 2 if "undecided" in verdicts or not verdicts else 0


def gate(
    current: Sequence[AuditRecord], baseline: Sequence[AuditRecord], tolerances: Mapping[str, float] | None = None
) -> GateResult:
    """The verdicts on every gated measurement of the baseline, models matched by name.

    By default counted figures must not get worse at all, quality by QUALITY_TOLERANCE, memory by
    MEMORY_TOLERANCE; time, energy and figures without a better direction are judged only where
    `tolerances` (relative, 0.05 is 5 %) names them. What only the current records have is not judged.
    Raises EffauditError for a negative tolerance or one on a measurement that the baseline has not.
    """
    asked = dict(tolerances or {})
    for name, tolerance in asked.items():
        if not 0 <= tolerance < float("inf"):
            raise EffauditError(f"tolerance of `{name}` is {tolerance}, not a share from 0 on", "5 % is 0.05")
    known = {m.name for record in baseline for m in record.measurements}
    for name in asked:
        if name not in known:
            raise unknown_name("measurements of the baseline", name, known)
    now = {record.model.name: record for record in current}
    rows: list[GateRow] = []
    for record in baseline:
        rows += _model_rows(record, now.get(record.model.name), asked)
    return GateResult(tuple(rows))


def _model_rows(old: AuditRecord, new: AuditRecord | None, asked: Mapping[str, float]) -> list[GateRow]:
    name = old.model.name
    if new is None:
        hint = "name the model as in the baseline, or update the baseline"
        return [_nothing(name, "the model is not among the current records", hint)]
    gated = [(m, tolerance) for m in old.measurements if (tolerance := _tolerance(m, asked)) is not None]
    difference = workload_difference(old, new)
    if difference and any(m.name not in WORKLOAD_FREE for m, _ in gated):
        hint = "audit the workload of the baseline, or update the baseline"
        return [_nothing(name, difference, hint)]
    return [_row(old, new, m, tolerance) for m, tolerance in gated]


def _tolerance(m: Measurement, asked: Mapping[str, float]) -> float | None:
    """How much worse `m` may get, relative; None where it is not gated."""
    if m.name in asked:
        return asked[m.name]
    if m.better == "neither" or m.value is None:
        return None
    if m.name.startswith("quality."):
        return QUALITY_TOLERANCE
    if m.source == "counted":
        return 0.0
    return MEMORY_TOLERANCE if m.unit == "B" else None


def _row(old: AuditRecord, new: AuditRecord, m: Measurement, tolerance: float) -> GateRow:
    delta = compare_measurement(old, new, m.name)
    before, after = delta.before, delta.after

    def row(verdict: GateVerdict, why: str, hint: str) -> GateRow:
        change = None if delta.ratio is None else delta.ratio - 1
        return GateRow(old.model.name, m.name, m.unit, before, after, change, tolerance, verdict, why, hint)

    if delta.verdict == "not_comparable" or before is None or after is None:
        return row("undecided", delta.reason, _hint(delta.reason))
    if is_machine_bound(m) and m.unit in TIMED_UNITS:
        if delta.interval is None:
            return row("undecided", "no interval: too few raw samples", "time more rounds, or leave it out of the gate")
        low, high = delta.interval
    elif delta.ratio is None:
        low = high = 1.0 if before == after else float("inf") if after > before else float("-inf")
    else:
        low = high = delta.ratio
    verdict, why = _judge(low, high, m, tolerance)
    return row(verdict, why, _NEXT_STEPS.get(verdict, ""))


def _judge(low: float, high: float, m: Measurement, tolerance: float) -> tuple[GateVerdict, str]:
    """The verdict on a ratio known to lie between `low` and `high` (equal for an exact one)."""
    if m.better == "higher":
        low, high = 2 - high, 2 - low  # mirrored at 1, so that more is worse from here on
    if m.better == "neither":
        outside = max(abs(low - 1), abs(high - 1)) > tolerance
        return ("regressed", "changed by more than its tolerance") if outside else ("pass", "within its tolerance")
    if low > 1 + tolerance:
        return "regressed", f"worse by more than its tolerance of {tolerance:.3g}" if tolerance else "worse"
    if high > 1 + tolerance:
        return "undecided", "the 95 % interval reaches beyond the tolerance"
    if high < 1 - tolerance:
        return "improved", "better than the baseline"
    return "pass", "as the baseline" if low == high == 1 else "within its tolerance"


def _hint(reason: str) -> str:
    if reason.startswith("measured on different"):
        return "gate time on the machine of the baseline, or leave it out"
    return "run the meter that gives it (--meters), or update the baseline"


def _nothing(model: str, why: str, hint: str) -> GateRow:
    """The row of a model of which nothing can be judged."""
    return GateRow(model, "all", "1", None, None, None, None, "undecided", why, hint)
