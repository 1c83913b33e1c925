"""The grid of a sweep as a table, the best row marked, with a sentence on how sure that is."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from effaudit import units
from effaudit.record import AuditRecord
from effaudit.renderers._layout import WIDTH, left, right, wrap
from effaudit.renderers._table import MARKS
from effaudit.renderers._words import main_quality, quality_name, quality_value
from effaudit.sweep_table import Cell, Grid, grids

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


def is_sweep(records: Sequence[AuditRecord]) -> bool:
    """Whether all records are cells of sweeps."""
    return bool(records) and all(record.model.swept is not None for record in records)


def sweep_blocks(records: Sequence[AuditRecord], width: int = WIDTH) -> list[list[str]]:
    """One block a swept model."""
    return [_block(grid, width) for grid in grids(records)]


def heads(grid: Grid) -> list[str]:
    """The axes, then every figure that a cell has."""
    return [*grid.axes, *_qualities(grid), *(_FIGURES[name] for name in _figures(grid))]


def texts(grid: Grid, cell: Cell) -> list[str]:
    """One row, in the order of `heads`."""
    quality = main_quality(cell.record)
    shown = (
        [] if not _qualities(grid) else ["–" if quality is None else f"{quality_value(quality)} {MARKS['measured']}"]
    )
    return [*(_value(value) for value in cell.values), *shown, *(_figure(cell.record, name) for name in _figures(grid))]


def sentence(grid: Grid) -> str:
    """Which cell is best, by what, and whether another may be as good."""
    best = grid.best
    if best is None or grid.deciding is None:
        return f"{grid.model}: no figure that all cells have says which is best"
    said = f"{grid.model}: best is {place(grid, best)}"
    first = grid.cells[0]
    if best is not first and best.ratio is not None:
        said += f", {units.number(best.ratio, 3)} times the {_WORDS[grid.deciding]} of {place(grid, first)}"
    else:
        said += f", by {_WORDS[grid.deciding]}"
    if grid.rivals:
        said += f"; not to be told from {', '.join(place(grid, cell) for cell in grid.rivals)}"
    return said


def place(grid: Grid, cell: Cell) -> str:
    """A cell in words: `attention sdpa, threads 2`."""
    return ", ".join(f"{axis} {_value(value)}" for axis, value in zip(grid.axes, cell.values, strict=True))


def _block(grid: Grid, width: int) -> list[str]:
    """Columns as wide as they need; figures that find no room are left to the record."""
    names = heads(grid)
    rows = [texts(grid, cell) for cell in grid.cells]
    widths = [max(cell_len(text) for text in column) for column in zip(names, *rows, strict=True)]
    n_shown = len(widths)
    while sum(widths[:n_shown]) + 2 * n_shown + 1 > width and n_shown > len(grid.axes) + 1:
        n_shown -= 1
    lines = [f"{grid.model}, swept over {', '.join(grid.axes)} ({BEST} best)"]
    for cell, row in zip((None, *grid.cells), (names, *rows), strict=True):
        mark = BEST if cell is not None and cell.is_best else " "
        cells = [
            left(text, w) if i < len(grid.axes) else right(text, w)
            for i, (text, w) in enumerate(zip(row[:n_shown], widths[:n_shown], strict=True))
        ]
        lines.append(f"{mark} {'  '.join(cells)}".rstrip())
    if n_shown < len(names):
        lines += wrap(f"no room here for {', '.join(names[n_shown:])}: see the records", "  ")
    return [*lines, *wrap(f"{sentence(grid)}.", "", "  ")]


def _qualities(grid: Grid) -> list[str]:
    found = (main_quality(cell.record) for cell in grid.cells)
    return [*dict.fromkeys(quality_name(quality) for quality in found if quality is not None)][:1]


def _figures(grid: Grid) -> list[str]:
    return [name for name in _FIGURES if any(cell.record.value(name) is not None for cell in grid.cells)]


def _figure(record: AuditRecord, name: str) -> str:
    m = record.get(name)
    if m is None or m.value is None:
        return "–"
    shown = units.number(m.value) if m.unit == "1/s" else units.quantity(m.value, m.unit)
    return f"{shown} {MARKS[m.source]}"


def _value(value: object) -> str:
    return "yes" if value is True else "no" if value is False else "none" if value is None else str(value)
