"""Where the energy of a pass goes: by domain, each with how its figure was had."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from effaudit.record import AuditRecord, Measurement
from effaudit.renderers._cells import MARKS, Cell, Table, number, quantity, text
from effaudit.renderers._topics._bars import Bar, Part, height_in, stacked_bars
from effaudit.renderers._topics._drawing import Drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TOTALS = ("energy.gross", "energy.net")  # every other measurement `energy.<domain>` is a part of the gross one
_PREFIX = "energy."


def drawing(records: Sequence[AuditRecord]) -> Drawing | None:
    """A bar a model, of its domains where they are known apart; None where no energy is known."""
    known = [(record, parts) for record in records if (parts := _parts(record))]
    if not known:
        return None
    bars = [Bar(record.model.name, tuple(_part(m) for m in parts)) for record, parts in known]

    names = list(dict.fromkeys(part.name for bar in bars for part in bar.parts))

    def plot(axes: Sequence[Axes]) -> None:
        stacked_bars(axes[0], bars, names, "J in one pass (hatched: modelled, not measured)", 1.0)

    heads = ("model", "domain", "energy of a pass", "how it was had")
    shown = Table("Energy by domain", heads, tuple(_line(record, m) for record, parts in known for m in parts))
    alt = "Bars of energy for one pass, a row a model, a colour a domain; hatched where a model stands in for a counter"
    return Drawing("energy", "Energy by domain", alt, shown, plot, height_in=height_in(len(bars)))


def _parts(record: AuditRecord) -> tuple[Measurement, ...]:
    """The domains; the gross energy where they are not known apart."""
    found = [m for m in record.measurements if m.name.startswith(_PREFIX) and m.unit == "J" and number(m.value)]
    domains = tuple(m for m in found if m.name not in TOTALS)
    return domains or tuple(m for m in found if m.name == TOTALS[0])


def _part(measurement: Measurement) -> Part:
    value = number(measurement.value)
    assert value is not None
    return Part(_domain(measurement), value, is_hatched=measurement.source == "modelled")


def _domain(measurement: Measurement) -> str:
    return "all domains" if measurement.name in TOTALS else measurement.name.removeprefix(_PREFIX)


def _line(record: AuditRecord, m: Measurement) -> tuple[Cell, ...]:
    return (
        text(record.model.name),
        text(_domain(m)),
        quantity(m.value, m.unit, MARKS[m.source]),
        text(f"{m.source}: {m.method}" if m.method else m.source),
    )
