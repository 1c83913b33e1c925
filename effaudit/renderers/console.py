"""The side-by-side comparison for a terminal of 80 columns, readable without colour."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.text import Text

from effaudit import units
from effaudit.ladder import REFERENCE_VARIANT
from effaudit.record import AuditRecord
from effaudit.renderers._in_depth import headers, notes, render_profile
from effaudit.renderers._layout import WIDTH, left, right, shorten, wrap
from effaudit.renderers._table import LEGEND, MARKS, Row, headings, rows
from effaudit.renderers._verdicts import render_changes, render_gate
from effaudit.renderers._words import ABSOLUTES, cautions, missing, sentence

__all__ = ["SUFFIX", "render", "render_changes", "render_gate", "render_profile", "show"]

SUFFIX = ".txt"

_MODEL_WIDTH = 13
_CELL_WIDTH = 10  # `-27.4 % m?`


def render(records: Sequence[AuditRecord]) -> str:
    """The comparison as plain text: dense in absolute figures, the table, sentences, cautions, what is missing."""
    if not records:
        return "no records\n"
    blocks = [
        headers(records),
        _reference_block(records),
        _table(records),
        [line for record in records for line in wrap(sentence(record, records), "", "  ")],
        notes("Cautions", cautions(records)),
        notes("Not available", missing(records)),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def show(text: str, file: TextIO | None = None) -> None:
    """Prints rendered text, coloured only on a terminal that wants it (NO_COLOR), and safe for its encoding."""
    file = sys.stdout if file is None else file
    encoding = getattr(file, "encoding", None) or "utf-8"
    safe = text.encode(encoding, "replace").decode(encoding)
    console = Console(file=file, highlight=False, no_color="NO_COLOR" in os.environ, soft_wrap=True)
    styled = Text(safe.removesuffix("\n"))
    styled.highlight_regex(r"(?m)(?<= )-\d[\d.]* %(?= [cm~])", "green")
    styled.highlight_regex(r"(?m)(?<= )(\+\d[\d.]* %|x\d[\d.e+]*)(?= [cm~])", "red")
    styled.highlight_regex(r"(?m)^(Cautions|Not available)$", "bold")
    console.print(styled)


def _reference_block(records: Sequence[AuditRecord]) -> list[str]:
    """The absolute figures of the dense models, which everything below is relative to."""
    lines = []
    for record in records:
        if record.model.variant != REFERENCE_VARIANT:
            continue
        lines.append(f"{shorten(record.model.name, 50)}, the reference")
        for name, label in ABSOLUTES:
            m = record.get(name)
            if m is not None:
                value = "" if m.value is None else units.quantity(m.value, m.unit)
                lines.append(f"  {label:<18} {value:>11} {MARKS[m.source]}")
    return lines


def _table(records: Sequence[AuditRecord]) -> list[str]:
    header = " " * _MODEL_WIDTH + "".join(right(h, _CELL_WIDTH + 1) for h in headings(records))
    body = [line for row in rows(records) for line in _table_row(row)]
    return [header, "-" * (WIDTH - 1), *body, "-" * (WIDTH - 1), LEGEND]


def _table_row(row: Row) -> list[str]:
    """One line; a name that is too long for its column gets a line of its own."""
    cells = "".join(right(str(cell), _CELL_WIDTH + 1) for cell in (row.quality, *row.steps))
    name = shorten(row.model, WIDTH - 1)
    if left(name, _MODEL_WIDTH).rstrip() == name:
        return [left(name, _MODEL_WIDTH) + cells]
    return [name, " " * _MODEL_WIDTH + cells]
