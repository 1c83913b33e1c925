"""Every measurement of every model in absolute figures."""

from __future__ import annotations

from collections.abc import Sequence

from effaudit.record import AuditRecord
from effaudit.renderers._cells import MARKS, Cell, Table, quantity, text


def table(records: Sequence[AuditRecord]) -> Table:
    """A row a measurement, a column a model."""
    names = dict.fromkeys(m.name for record in records for m in record.measurements)
    heads = ("measurement", *(record.model.name for record in records))
    return Table("All measurements", heads, tuple((text(name), *_figures(name, records)) for name in names))


def _figures(name: str, records: Sequence[AuditRecord]) -> list[Cell]:
    found = (record.get(name) for record in records)
    return [quantity(m.value, m.unit, MARKS[m.source]) if m is not None else quantity(None) for m in found]
