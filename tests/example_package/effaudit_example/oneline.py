"""The names of the models, on one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from effaudit.record import AuditRecord

SUFFIX = ".txt"


def render(records: Sequence[AuditRecord], examples: Mapping[str, object] | None = None) -> str:
    return " ".join(record.model.name for record in records) + "\n"
