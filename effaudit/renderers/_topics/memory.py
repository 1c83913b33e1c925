"""What a model holds in memory: its weights, and the peak above the state before it ran."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from effaudit.record import AuditRecord
from effaudit.renderers._cells import MARKS, Cell, Table, number, quantity, text
from effaudit.renderers._layout import shorten
from effaudit.renderers._topics import _style
from effaudit.renderers._topics._bars import height_in
from effaudit.renderers._topics._drawing import Drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Measurement and what it is called; beside each other, not stacked: weights may or may not be part of a peak.
KINDS = (
    ("memory.peak", "peak of a pass"),
    ("memory.allocated", "allocated on the device"),
    ("memory.reserved", "reserved on the device"),
    ("memory.weights", "weights"),
)
_MB = 1e6


def drawing(records: Sequence[AuditRecord]) -> Drawing | None:
    """A bar a model and kind; None where nothing was measured."""
    kinds = [(name, label) for name, label in KINDS if any(number(r.value(name)) is not None for r in records)]
    if not kinds:
        return None

    def plot(axes: Sequence[Axes]) -> None:
        ax, width = axes[0], 0.8 / len(kinds)
        for i, (name, label) in enumerate(kinds):
            known = [(y, size) for y, r in enumerate(records) if (size := number(r.value(name))) is not None]
            places = [y + width * (i - (len(kinds) - 1) / 2) for y, _ in known]
            colour = _style.SERIES[i][0]
            ax.barh(places, [size / _MB for _, size in known], width * 0.92, color=colour, label=label)
        ax.set_yticks(range(len(records)), [shorten(record.model.name, _style.NAME_WIDTH) for record in records])
        ax.set_ylim(len(records) - 0.5, -0.5)
        ax.set_xlabel("MB")
        ax.grid(axis="x")
        ax.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))

    heads = ("model", *(label for _, label in kinds), "how the peak was read")
    lines = tuple(_line(record, [name for name, _ in kinds]) for record in records)
    alt = f"Bars for each model: {', '.join(label for _, label in kinds)}, in megabytes"
    return Drawing(
        "memory", "Memory", alt, Table("Memory", heads, lines), plot, height_in=height_in(len(records)) + 0.4
    )


def _line(record: AuditRecord, names: Sequence[str]) -> tuple[Cell, ...]:
    found = [record.get(name) for name in names]
    cells = [quantity(m.value, m.unit, MARKS[m.source]) if m is not None else quantity(None) for m in found]
    peak = record.get("memory.peak")
    return (text(record.model.name), *cells, text(peak.method if peak is not None else "not measured"))
