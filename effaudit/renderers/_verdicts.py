"""What the gate and a baseline update say in a terminal of 80 columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from effaudit import units
from effaudit.baselines import Change, Value
from effaudit.gate_rows import GateResult, GateRow
from effaudit.renderers._layout import WIDTH, left, right, shorten, wrap

_WIDTHS = (12, 12, 11, 11)  # baseline, current, change, tolerance
_HEADER = " " * 34 + "    baseline     current     change  tolerance"


def render_gate(result: GateResult) -> str:
    """A block a model: a line a measurement, below those that did not pass why and what to do; the outcome."""
    lines: list[str] = []
    for model, rows in groupby(result.rows, key=lambda row: row.model):
        lines += [shorten(model, WIDTH), _HEADER]
        for (why, hint), alike in groupby(rows, key=_remark):
            lines += [_line(row) for row in alike]
            lines += wrap(why, "    ") if why else []
            lines += wrap(hint, "    hint: ") if hint else []
        lines.append("")
    lines += wrap(f"gate: {result.outcome} ({tally(result)})")
    return "\n".join(lines) + "\n"


def tally(result: GateResult) -> str:
    """How many rows have which verdict, in words."""
    counts = Counter(row.verdict for row in result.rows)
    return ", ".join(f"{n} {verdict}" for verdict, n in counts.items()) or "nothing in common to compare"


def cells(row: GateRow) -> tuple[str, str, str, str]:
    """Baseline, current, change and tolerance as text."""
    tolerance = "–" if row.tolerance is None else _tolerance(row.tolerance)
    return figure(row.baseline, row.unit), figure(row.current, row.unit), change(row.change), tolerance


def change(share: float | None) -> str:
    """A relative change with two decimals, more where a counted figure differs by less than they show."""
    if share is None:
        return "–"
    shown = units.signed_percent(share, 2)
    return f"{100 * share:+.1e} %" if share and shown.startswith("0") else shown


def figure(value: Value, unit: str) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else units.quantity(value, unit)


def render_changes(changes: Sequence[Change]) -> str:
    """One line for everything that an update changes, adds or drops."""
    lines = []
    for item in changes:
        before, after = (figure(value, item.unit) for value in (item.before, item.after))
        lines += wrap(f"{item.model} {item.what}: {before} -> {after}{_by_how_much(item)}", "", "  ")
    return "\n".join(lines or ["nothing changes"]) + "\n"


def _by_how_much(item: Change) -> str:
    if isinstance(item.before, int | float) and isinstance(item.after, int | float) and item.before:
        return f" ({change((item.after - item.before) / abs(item.before))})"
    return ""


def _remark(row: GateRow) -> tuple[str, str]:
    """What is said below a row, or below a run of rows of which the same is said."""
    return ("", "") if row.verdict in ("pass", "improved") else (row.why, row.hint)


def _line(row: GateRow) -> str:
    shown = zip(cells(row), _WIDTHS, strict=True)
    return f"  {row.verdict:<10}{left(row.measurement, 22)}" + "".join(right(cell, width) for cell, width in shown)


def _tolerance(share: float) -> str:
    return units.percent(share, 1 if round(share, 3) == share else 2)
