"""Every measurement of every record as one CSV row, at full precision."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from effaudit.record import AuditRecord

SUFFIX = ".csv"

COLUMNS = ("model", "measurement", "value", "unit", "better", "source", "method")


def render(records: Sequence[AuditRecord]) -> str:
    """The table, an empty value for what is unavailable."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for record in records:
        for m in record.measurements:
            value = "" if m.value is None else repr(m.value)
            writer.writerow((record.model.name, m.name, value, m.unit, m.better, m.source, m.method))
    return text.getvalue()
