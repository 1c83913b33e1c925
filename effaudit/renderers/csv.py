"""Every measurement of every record as one CSV row, at full precision; then its parts by layer, difficulty, class."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from effaudit.record import AuditRecord
from effaudit.renderers._shares import Examples, levels_of

SUFFIX = ".csv"

# `by` and `group` say of which part a row is: empty for the whole workload, else `layer` and `3`, for example.
COLUMNS = ("model", "measurement", "by", "group", "value", "unit", "better", "source", "method")
_LAYER = ("head_fraction", "budget", "alpha_soft", "alpha_hard", "exit_share")
_CLASS = ("n_tokens", "loss", "alpha_soft", "alpha_hard", "exit_layer")
_LEVEL = (
    "n_examples",
    "n_tokens",
    "accuracy",
    "loss",
    "head_fraction",
    "budget",
    "alpha_hard",
    "exit_layer",
    "flops_routed",
)
_UNITS = {"loss": "nat", "exit_layer": "layer", "flops": "FLOP", "flops_routed": "FLOP"}

Line = tuple[str, ...]


def render(records: Sequence[AuditRecord], examples: Examples | None = None) -> str:
    """The table, an empty value for what is unavailable."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for record in records:
        writer.writerows(_whole(record))
        writer.writerows(_parts(record, records, examples or {}))
    return text.getvalue()


def _whole(record: AuditRecord) -> Iterator[Line]:
    for m in record.measurements:
        value = "" if m.value is None else repr(m.value)
        yield record.model.name, m.name, "", "", value, m.unit, m.better, m.source, m.method


def _parts(record: AuditRecord, records: Sequence[AuditRecord], examples: Examples) -> Iterator[Line]:
    name = record.model.name
    for layer in record.layers:
        yield from _columns(name, "layer", str(layer.layer), layer, _LAYER)
    for row in record.token_classes:
        yield from _columns(name, "token class", row.name, row, _CLASS)
    for level in levels_of(record, records, examples):
        yield from _columns(name, "difficulty", level.level, level, _LEVEL)
    for module in record.modules:
        yield _part(name, "flops", "module", module.path, module.flops)
    for control in record.controls:
        if control.value is not None:
            unit = next((m.unit for m in record.measurements if m.name == control.measurement), "1")
            yield name, control.measurement, "control", control.kind, repr(control.value), unit, "", "", control.note


def _columns(name: str, by: str, group: str, row: object, columns: Sequence[str]) -> Iterator[Line]:
    for column in columns:
        value = getattr(row, column)
        if value is not None:
            yield _part(name, column, by, group, value)


def _part(name: str, column: str, by: str, group: str, value: int | float) -> Line:
    return name, column, by, group, repr(value), _UNITS.get(column, "1"), "", "", ""
