"""All controls in a terminal: a line each, with whether the model's own routing is better, and their notes below."""

from __future__ import annotations

from collections.abc import Sequence

from effaudit.record import AuditRecord, Control
from effaudit.renderers._control_words import SHORT, difference, quality_of, span, standing, value
from effaudit.renderers._layout import left, right, wrap
from effaudit.routing_verdict import deciding_control

_HEAD = "Controls" + " " * 27 + "quality  control less model            own is"


def control_block(records: Sequence[AuditRecord]) -> list[str]:
    lines = [line for record in records for line in _lines(record)]
    return [_HEAD, *lines, *_deciding(records), *_notes(records)] if lines else []


def _lines(record: AuditRecord) -> list[str]:
    return [_line(record, c, record.model.name if i == 0 else "") for i, c in enumerate(record.controls)]


def _line(record: AuditRecord, control: Control, name: str) -> str:
    quality = f"{quality_of(control)} {value(control)}"
    change = f"{difference(control)} {span(control)}".rstrip()
    kind, verdict = left(SHORT[control.kind], 13), right(standing(record, control), 10)
    return f"{left(name, 13)} {kind}{right(quality, 15)}  {left(change, 26)}{verdict}"


def _deciding(records: Sequence[AuditRecord]) -> list[str]:
    """Which control the verdict on each model rests on."""
    about: dict[str, list[str]] = {}
    for record in records:
        control = deciding_control(record)
        if control is not None:
            about.setdefault(SHORT[control.kind], []).append(record.model.name)
    told = "; ".join(f"{kind} ({', '.join(models)})" for kind, models in about.items())
    return wrap(f"the verdict on learned routing rests on: {told}", "  - ") if told else []


def _notes(records: Sequence[AuditRecord]) -> list[str]:
    """Each note once, with the controls that it is about."""
    about: dict[str, dict[str, list[str]]] = {}
    for record in records:
        for control in record.controls:
            if control.note:
                about.setdefault(control.note, {}).setdefault(record.model.name, []).append(SHORT[control.kind])
    lines = []
    for note, models in about.items():
        whom = "; ".join(f"{model}: {', '.join(kinds)}" for model, kinds in models.items())
        lines += wrap(f"{note} ({whom})", "  - ")
    return lines
