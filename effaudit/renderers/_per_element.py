"""What models do beside products, side by side: work per element, bytes gathered and scattered."""

from __future__ import annotations

from collections.abc import Sequence

from effaudit import units
from effaudit.record import AuditRecord
from effaudit.renderers._layout import left, right
from effaudit.renderers._table import MARKS

_COLUMNS = (("flops.elementwise", "per element"), ("bytes.gathered", "gather, scatter"))


def per_element(records: Sequence[AuditRecord]) -> list[str]:
    """A line for each model that has such figures; nothing where no audit asked for them."""
    lines = []
    for record in records:
        cells = [_cell(record, name) for name, _ in _COLUMNS]
        if any(cells):
            lines.append(f"  {left(record.model.name, 30)}" + "".join(right(cell, 20) for cell in cells))
    heads = f"  {' ' * 30}" + "".join(right(label, 20) for _, label in _COLUMNS)
    return ["Work beside products, no part of the FLOPs above", heads, *lines] if lines else []


def _cell(record: AuditRecord, name: str) -> str:
    m = record.get(name)
    return "" if m is None or m.value is None else f"{units.quantity(m.value, m.unit)} {MARKS[m.source]}"
