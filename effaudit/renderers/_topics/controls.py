"""Is what was learned better than chance at equal cost: every control with its difference to the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from effaudit import units
from effaudit.record import AuditRecord, Control
from effaudit.renderers._cells import NOTHING, Cell, Table, count, number, percent, text
from effaudit.renderers._control_words import LONG, SHORT, difference, quality_of, span, standing, value
from effaudit.renderers._layout import shorten
from effaudit.renderers._topics import _style
from effaudit.renderers._topics._drawing import Drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def table(records: Sequence[AuditRecord]) -> Table:
    figures = ("quality", "value", "less the model", "95 % interval", "FLOPs", "own is")
    heads = ("model", "control", "draws", "examples", "runs", *figures, "note")
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
        names = [f"{shorten(r.model.name, _style.NAME_WIDTH)}: {SHORT[c.kind]}" for r, c in alike]
        ax.set_yticks(range(len(alike)), names)
        ax.set_ylim(len(alike) - 0.5, -0.5)
        ax.set_xlabel(f"{unit.removeprefix('quality.')}, control less model")
        ax.grid(axis="x")

    alt = (
        f"A row a control: {unit} under another routing less that of the model itself, with its 95 % interval. "
        "Where the interval holds zero, the control is as good"
    )
    height = 1.1 + 0.34 * len(alike)
    return Drawing("controls", "Against other routings", alt, table(records), plot, height_in=height)


def _row(record: AuditRecord, control: Control) -> tuple[Cell, ...]:
    ratio = control.flops_ratio
    return (
        text(record.model.name),
        text(LONG[control.kind]),
        count(control.n_draws),
        Cell(NOTHING) if control.n_examples is None else count(control.n_examples),
        percent(control.rate),
        text(quality_of(control)),
        Cell(value(control), number(control.value)),
        Cell(difference(control), number(control.difference)),
        text(span(control)),
        Cell(NOTHING) if ratio is None else Cell(f"x{units.number(ratio)}", number(ratio)),
        text(standing(record, control)),
        text(control.note),
    )
