"""The grid of a sweep in words and figures: a row a cell, which is best, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence

from effaudit import units
from effaudit.record import AuditRecord
from effaudit.renderers._cells import MARKS, NOTHING, Cell, Table, quantity, text
from effaudit.renderers._words import main_quality, quality_name, quality_shown, quality_value
from effaudit.sweep_table import Grid, Place, grids

BEST = "*"
_FIGURES = {
    "flops.executed": "FLOPs",
    "latency.p50": "latency",
    "throughput.examples": "examples/s",
    "memory.peak": "peak mem.",
    "memory.weights": "weights",
    "energy.gross": "energy",
}
_WORDS = {"throughput.examples": "examples per second", "flops.executed": "FLOPs"}


def tables(records: Sequence[AuditRecord]) -> tuple[Table, ...]:
    """One a swept model: the best row's mark, the axes, then every figure that a cell has."""
    return tuple(_table(grid) for grid in grids(records))


def lines(records: Sequence[AuditRecord]) -> tuple[str, ...]:
    """One sentence a swept model: which cell is best, by what, and whether another may be as good."""
    return tuple(sentence(grid) for grid in grids(records))


def _table(grid: Grid) -> Table:
    found = (main_quality(cell.record) for cell in grid.cells)
    qualities = [*dict.fromkeys(quality_name(quality) for quality in found if quality is not None)][:1]
    names = [name for name in _FIGURES if any(cell.record.value(name) is not None for cell in grid.cells)]
    heads = ("", *grid.axes, *qualities, *(_FIGURES[name] for name in names))
    rows = (
        (
            text(BEST if cell.is_best else ""),
            *(text(_value(value)) for value in cell.values),
            *([_quality(cell.record)] if qualities else ()),
            *(_figure(cell.record, name) for name in names),
        )
        for cell in grid.cells
    )
    return Table(f"{grid.model}, swept over {', '.join(grid.axes)} ({BEST} best)", heads, tuple(rows))


def sentence(grid: Grid) -> str:
    best = grid.best
    if best is None or grid.deciding is None:
        return f"{grid.model}: no figure that all cells have says which is best."
    said = f"{grid.model}: best is {_place(grid, best)}"
    first = grid.cells[0]
    if best is not first and best.ratio is not None:
        said += f", {units.number(best.ratio, 3)} times the {_WORDS[grid.deciding]} of {_place(grid, first)}"
    else:
        said += f", by {_WORDS[grid.deciding]}"
    if grid.rivals:
        said += f"; not to be told from {' and from '.join(_place(grid, cell) for cell in grid.rivals)}"
    return f"{said}."


def _place(grid: Grid, cell: Place) -> str:
    """A cell in words: `attention sdpa, threads 2`."""
    return ", ".join(f"{axis} {_value(value)}" for axis, value in zip(grid.axes, cell.values, strict=True))


def _quality(record: AuditRecord) -> Cell:
    found = main_quality(record)
    if found is None:
        return Cell(NOTHING)
    return Cell(f"{quality_shown(found.name, quality_value(record, found))} {MARKS[found.source]}")


def _figure(record: AuditRecord, name: str) -> Cell:
    m = record.get(name)
    if m is None or m.value is None:
        return Cell(NOTHING)
    if m.unit == "1/s":  # the column says of what
        return Cell(f"{units.number(m.value)} {MARKS[m.source]}", float(m.value))
    return quantity(m.value, m.unit, MARKS[m.source])


def _value(value: object) -> str:
    return "yes" if value is True else "no" if value is False else "none" if value is None else str(value)
