"""Is what was learned better than chance at equal cost: the same weights under another routing, in words and rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from effaudit import units
from effaudit.record import AuditRecord, Control
from effaudit.renderers._cells import NOTHING, Cell, Table, count, number, percent, text
from effaudit.renderers._layout import shorten
from effaudit.renderers._topics import _style
from effaudit.renderers._topics._drawing import Drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HEADS = ("control less model", "95 % interval", "FLOPs")
KINDS: Mapping[str, str] = {
    "random": "random routing at the same rate",
    "constant": "constant routing",
    "untrained": "untrained gates",
    "soft": "soft gates",
    "random_fixed": "training with fixed random routing",
}


def lines(records: Sequence[AuditRecord]) -> tuple[str, ...]:
    """One sentence a control."""
    return tuple(_sentence(record, control) for record in records for control in record.controls)


def table(records: Sequence[AuditRecord]) -> Table:
    heads = ("model", "control", "draws", "examples", "runs", "quality", "value", *_HEADS, "note")
    rows = tuple(_row(record, control) for record in records for control in record.controls)
    return Table("Against controls", heads, rows)


def drawing(records: Sequence[AuditRecord]) -> Drawing | None:
    """The difference to the model with its interval, a row a control; None where no difference is known."""
    found = [(r, c) for r in records for c in r.controls if number(c.difference) is not None]
    if not found:
        return None
    unit = found[0][1].measurement
    alike = [(r, c) for r, c in found if c.measurement == unit]

    def plot(axes: Sequence[Axes]) -> None:
        ax = axes[0]
        for y, (record, control) in enumerate(alike):
            look = _style.look(record, records)
            ax.plot([control.difference or 0.0], [y], look.marker, color=look.colour, markersize=8)
            if control.interval is not None:
                ax.plot(control.interval, [y, y], color=look.colour, linewidth=1.6)
        ax.axvline(0, color=_style.INK, linewidth=0.8)
        names = [f"{shorten(r.model.name, _style.NAME_WIDTH)}: {KINDS[c.kind]}" for r, c in alike]
        ax.set_yticks(range(len(alike)), names)
        ax.set_ylim(len(alike) - 0.5, -0.5)
        ax.set_xlabel(f"{unit.removeprefix('quality.')}: control less the model itself")
        ax.grid(axis="x")

    alt = (
        f"A row a control: {unit} under another routing less that of the model itself, with its 95 % interval. "
        "Where the interval holds zero, the control is as good"
    )
    height = 1.1 + 0.34 * len(alike)
    return Drawing("controls", "Against other routings of the same rate", alt, table(records), plot, height_in=height)


def _sentence(record: AuditRecord, control: Control) -> str:
    what = f"{record.model.name} with {KINDS[control.kind]}"
    note = f" ({control.note})" if control.note else ""
    if control.value is None or control.difference is None:
        return f"{what}: not to be had{note}."
    name = control.measurement.removeprefix("quality.")
    span = f" {_span(control)}" if control.interval else ""
    return f"{what}: {name} {_value(control)}, {_difference(control)}{span}: {_verdict(record, control)}{note}."


def _verdict(record: AuditRecord, control: Control) -> str:
    """Whether the model's own routing is better, for a reader who asks whether it is worth its gates."""
    own = "the hard rule" if control.kind == "soft" else "the learned routing"
    if control.interval is None:
        return "no interval, so nothing is shown"
    low, high = control.interval
    if low <= 0 <= high:
        on = "" if control.n_examples is None else f" on {control.n_examples} examples"
        return f"{own} is not better, the two are not distinguishable{on}"
    measurement = record.get(control.measurement)
    is_higher_better = measurement is not None and measurement.better == "higher"
    return f"{own} is {'better' if (high < 0) == is_higher_better else 'worse'}"


def _row(record: AuditRecord, control: Control) -> tuple[Cell, ...]:
    ratio = control.flops_ratio
    return (
        text(record.model.name),
        text(KINDS[control.kind]),
        count(control.n_draws),
        Cell(NOTHING) if control.n_examples is None else count(control.n_examples),
        percent(control.rate),
        text(control.measurement.removeprefix("quality.")),
        Cell(_value(control), number(control.value)),
        Cell(_difference(control) if control.difference is not None else NOTHING, number(control.difference)),
        text(_span(control)),
        Cell(NOTHING) if ratio is None else Cell(f"x{units.number(ratio)}", number(ratio)),
        text("; ".join(part for part in (_verdict(record, control) if control.interval else "", control.note) if part)),
    )


def _value(control: Control) -> str:
    if control.value is None:
        return NOTHING
    return units.percent(control.value) if _is_share(control) else units.number(control.value, 4)


def _difference(control: Control) -> str:
    assert control.difference is not None
    if _is_share(control):
        return units.points(control.difference, 2)
    sign = "+" if control.difference > 0 else ""
    return f"{sign}{units.number(control.difference)}"


def _span(control: Control) -> str:
    if control.interval is None:
        return ""
    low, high = control.interval
    if _is_share(control):
        return units.interval(low, high, 2)
    return f"[{units.number(low)}, {units.number(high)}]"


def _is_share(control: Control) -> bool:
    return control.measurement == "quality.accuracy"
