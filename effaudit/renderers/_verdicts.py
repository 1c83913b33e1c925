"""What the gate and a baseline update say in a terminal of 80 columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from effaudit import units
from effaudit.baselines import Change
from effaudit.gating import GateResult, GateRow
from effaudit.renderers._layout import WIDTH, left, right, shorten, wrap

_WIDTHS = (13, 13, 11, 11)  # baseline, current, change, tolerance
_HEADER = " " * 32 + "     baseline      current     change  tolerance"
_OUTCOMES = {0: "pass", 1: "regressed", 2: "could not decide"}


def render_gate(result: GateResult) -> str:
    """A block a model: one line a measurement, below each failed or undecided one why and what to do; the outcome."""
    lines: list[str] = []
    models = dict.fromkeys(row.model for row in result.rows)
    for model in models:
        lines += [shorten(model, WIDTH), _HEADER]
        for row in result.rows:
            if row.model == model:
                lines += _lines(row)
        lines.append("")
    counts = Counter(row.verdict for row in result.rows)
    tally = ", ".join(f"{n} {verdict}" for verdict, n in counts.items()) or "nothing in common to compare"
    lines += wrap(f"gate: {_OUTCOMES[result.exit_code]} ({tally})")
    return "\n".join(lines) + "\n"


def render_changes(changes: Sequence[Change]) -> str:
    """One line a figure that an update changes, adds or drops."""
    lines = []
    for change in changes:
        before, after = (_figure(value, change.unit) for value in (change.before, change.after))
        lines += wrap(f"{change.model} {change.measurement}: {before} -> {after}", "", "  ")
    return "\n".join(lines or ["nothing changes"]) + "\n"


def _lines(row: GateRow) -> list[str]:
    before, after = (_figure(value, row.unit) for value in (row.baseline, row.current))
    change = "–" if row.change is None else _change(row.change)
    tolerance = "–" if row.tolerance is None else units.percent(row.tolerance)
    cells = zip((before, after, change, tolerance), _WIDTHS, strict=True)
    lines = [f"  {row.verdict:<10}{left(row.measurement, 20)}" + "".join(right(cell, width) for cell, width in cells)]
    if row.verdict in ("regressed", "undecided"):
        lines += wrap(row.why, "    ")
        lines += wrap(row.hint, "    hint: ") if row.hint else []
    return lines


def _change(change: float) -> str:
    """Two decimals, more where a counted figure differs by less than they show."""
    shown = units.signed_percent(change, 2)
    return f"{100 * change:+.1e} %" if change and shown.startswith("0") else shown


def _figure(value: int | float | None, unit: str) -> str:
    return "–" if value is None else units.quantity(value, unit)
