"""How models were brought to the same cost or quality: which knob was turned, what was reached, what remains."""

from __future__ import annotations

from collections.abc import Sequence

from effaudit import units
from effaudit.comparison import Delta, compare_measurement, ratio_of
from effaudit.record import AuditRecord, Match
from effaudit.renderers._cells import NOTHING, Cell, Table, number, text
from effaudit.renderers._words import main_quality, quality_name, quality_shown

_COSTS = (("flops.executed", "FLOPs"), ("latency.p50", "latency"))


def lines(records: Sequence[AuditRecord]) -> tuple[str, ...]:
    """One sentence a matched model."""
    return tuple(_sentence(r, r.model.match, records) for r in records if r.model.match is not None)


def table(records: Sequence[AuditRecord]) -> Table:
    heads = ("model", "meets", "in", "goal", "knob", "setting", "reached", "audited, or why not")
    rows = tuple(_row(r, r.model.match, records) for r in records if r.model.match is not None)
    return Table("Matched", heads, rows)


def _sentence(record: AuditRecord, match: Match, records: Sequence[AuditRecord]) -> str:
    unit = _unit(record, match)
    aim = f"{match.measurement} of {match.model} ({units.quantity(match.goal, unit)})"
    if match.setting is None or match.reached is None:
        span = "" if match.reachable is None else f", within reach: {_range(match.reachable, unit)}"
        return f"{record.model.name} does not meet {aim}: {match.reason or 'no setting does'}{span}."
    setting = f"{match.knob} {units.number(match.setting)}"
    reached = units.quantity(match.reached, unit)
    residual = _residual(record, match, records)
    told = f"{record.model.name} meets {aim} with {setting}: {reached} on {_where(match)}{residual}"
    at_that = _at_that(record, match, records)
    return f"{told}; {at_that}." if at_that else f"{told}."


def _where(match: Match) -> str:
    on = "" if match.n_examples is None else f"{match.n_examples} examples of "
    return f"{on}the calibration split"


def _residual(record: AuditRecord, match: Match, records: Sequence[AuditRecord]) -> str:
    """What remains between the two models on the split that is audited."""
    other = next((r for r in records if r.model.name == match.model), None)
    own, its = record.value(match.measurement), None if other is None else other.value(match.measurement)
    if own is None or its is None:
        return ""
    ratio = ratio_of(its, own)
    off = f", {units.signed_percent(ratio - 1, 2)}" if ratio is not None else ""
    unit = _unit(record, match)
    return f", {units.quantity(own, unit)} against {units.quantity(its, unit)} on the audited split{off}"


def _at_that(record: AuditRecord, match: Match, records: Sequence[AuditRecord]) -> str:
    """What the two models differ by where they are alike: in quality, or in cost where they were matched by quality."""
    other = next((r for r in records if r.model.name == match.model), None)
    quality = main_quality(record)
    if other is None:
        return ""
    if match.measurement.startswith("quality."):
        changes = [(label, compare_measurement(other, record, name)) for name, label in _COSTS]
        told = [f"{label} {_change(delta)}" for label, delta in changes if delta.ratio is not None]
        return f"for that, {', '.join(told)}" if told else ""
    if quality is None:
        return ""
    delta = compare_measurement(other, record, quality.name)
    if delta.before is None or delta.after is None or delta.verdict == "not_comparable":
        return ""
    own, its = (quality_shown(quality.name, value) for value in (delta.after, delta.before))
    return f"at that, {quality_name(quality)} {own} against {its}{_by(delta, quality.name)}"


def _change(delta: Delta) -> str:
    assert delta.ratio is not None
    shown = units.signed_percent(delta.ratio - 1)
    if delta.interval is None:
        return shown
    low, high = delta.interval
    return f"{shown} {units.interval(low - 1, high - 1)}"


def _by(delta: Delta, name: str) -> str:
    """The difference with its paired interval, and whether it is one."""
    if delta.difference is None or delta.before is None or delta.after is None:
        return ""
    change, (low, high) = delta.after - delta.before, delta.difference
    is_share = name == "quality.accuracy"
    points = f"{100 * change:+.2f} points {units.interval(low, high, 2)}"
    doubt = ", not distinguishable" if delta.verdict == "unsure" else ""
    return f", {points if is_share else f'{change:+.4f} [{low:.4f}, {high:.4f}]'}{doubt}"


def _row(record: AuditRecord, match: Match, records: Sequence[AuditRecord]) -> tuple[Cell, ...]:
    unit = _unit(record, match)
    reach = "" if match.reachable is None else f" (within reach: {_range(match.reachable, unit)})"
    met = (_residual(record, match, records).removeprefix(", "), _at_that(record, match, records))
    return (
        text(record.model.name),
        text(match.model),
        text(match.measurement),
        Cell(units.quantity(match.goal, unit), number(match.goal)),
        text(match.knob),
        Cell(NOTHING if match.setting is None else units.number(match.setting), number(match.setting)),
        Cell(NOTHING if match.reached is None else units.quantity(match.reached, unit), number(match.reached)),
        text(f"{match.reason}{reach}" if match.setting is None else "; ".join(part for part in met if part)),
    )


def _range(ends: tuple[float, float], unit: str) -> str:
    low, high = ends
    return f"{units.quantity(low, unit)} to {units.quantity(high, unit)}"


def _unit(record: AuditRecord, match: Match) -> str:
    measurement = record.get(match.measurement)
    return "1" if measurement is None else measurement.unit
