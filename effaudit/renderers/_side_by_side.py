"""The side-by-side table in a terminal: as wide as it is, with intervals where there is room for them."""

from __future__ import annotations

from collections.abc import Sequence

from effaudit.record import AuditRecord
from effaudit.renderers._layout import WIDTH, left, right, shorten
from effaudit.renderers._table import LEGENDS, Row, StepCell, headings, rows

_NAME_WIDTH = 13
_MAX_NAME_WIDTH = 30
_CELL_WIDTH = 10  # `-27.4 % m?`


def side_by_side(records: Sequence[AuditRecord], width: int = WIDTH) -> list[str]:
    heads, found = headings(records), rows(records)
    plain = [[str(cell) for cell in (row.quality, *row.steps)] for row in found]
    spacious = [[_with_interval(cell) for cell in (row.quality, *row.steps)] for row in found]
    for cells in (spacious, plain):
        widths = [max(_CELL_WIDTH, *map(len, column)) + 1 for column in zip(heads, *cells, strict=True)]
        name_width = max(_NAME_WIDTH, min(_MAX_NAME_WIDTH, width - 1 - sum(widths), _longest(found)))
        if name_width + sum(widths) < width:
            break
    header = " " * name_width + "".join(right(head, size) for head, size in zip(heads, widths, strict=True))
    rule = "-" * (name_width + sum(widths))
    body = [
        line
        for row, line_cells in zip(found, cells, strict=True)
        for line in _lines(row, line_cells, name_width, widths)
    ]
    return [header, rule, *body, rule, *LEGENDS]


def _with_interval(cell: StepCell) -> str:
    return f"{cell} {cell.interval}" if cell.interval else str(cell)


def _longest(found: Sequence[Row]) -> int:
    return max(len(row.model) for row in found)


def _lines(row: Row, cells: Sequence[str], name_width: int, widths: Sequence[int]) -> list[str]:
    """One line; a name that is too long for its column gets a line of its own."""
    shown = "".join(right(cell, size) for cell, size in zip(cells, widths, strict=True))
    name = shorten(row.model, name_width + sum(widths))
    if left(name, name_width).rstrip() == name:
        return [left(name, name_width) + shown]
    return [name, " " * name_width + shown]
