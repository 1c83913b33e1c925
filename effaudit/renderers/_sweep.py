"""The grid of a sweep for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from effaudit.record import AuditRecord
from effaudit.renderers._cells import Table
from effaudit.renderers._layout import WIDTH, left, right, wrap
from effaudit.renderers._topics import sweep


def is_sweep(records: Sequence[AuditRecord]) -> bool:
    """Whether all records are cells of sweeps."""
    return bool(records) and all(record.model.swept is not None for record in records)


def sweep_blocks(records: Sequence[AuditRecord], width: int = WIDTH) -> list[list[str]]:
    """One block a swept model."""
    pairs = zip(sweep.tables(records), sweep.lines(records), strict=True)
    return [[*_block(table, width), *wrap(line, "", "  ")] for table, line in pairs]


def _block(table: Table, width: int) -> list[str]:
    """Columns as wide as they need; figures that find no room are left to the record."""
    rows = [table.heads, *(tuple(cell.text for cell in row) for row in table.rows)]
    widths = [max(1, *(cell_len(text) for text in column)) for column in zip(*rows, strict=True)]
    n_shown = len(widths)
    while sum(widths[:n_shown]) + 2 * (n_shown - 1) > width and n_shown > 2:
        n_shown -= 1
    is_figure = table.numeric
    lines = wrap(table.caption)
    for row in rows:
        shown = zip(row[:n_shown], widths[:n_shown], is_figure[:n_shown], strict=True)
        lines.append("  ".join(right(text, w) if is_number else left(text, w) for text, w, is_number in shown).rstrip())
    if n_shown < len(table.heads):
        lines += wrap(f"no room here for {', '.join(table.heads[n_shown:])}: see the records", "  ")
    return lines
