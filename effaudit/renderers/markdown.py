"""The side-by-side comparison in GitHub-flavoured Markdown, for pull requests."""

from __future__ import annotations

import re
from collections.abc import Sequence

from effaudit.record import AuditRecord
from effaudit.renderers._layout import printable
from effaudit.renderers._table import LEGEND, headings, rows
from effaudit.renderers._words import Note, cautions, missing, sentence

SUFFIX = ".md"

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~<>&$@])")


def render(records: Sequence[AuditRecord]) -> str:
    """The sentences, the table, cautions and what is missing."""
    blocks = [
        ["# effaudit"],
        [f"- {escape(sentence(record, records))}" for record in records],
        _table(records),
        _notes("Cautions", cautions(records)),
        _notes("Not available", missing(records)),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def escape(text: str) -> str:
    """`text` as itself: on one line, with nothing in it that Markdown or HTML would read."""
    return _SPECIAL.sub(r"\\\1", printable(text)).replace("\\<", "&lt;").replace("\\>", "&gt;").replace("\\&", "&amp;")


def _table(records: Sequence[AuditRecord]) -> list[str]:
    heads = ("model", *headings(records))
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    for row in rows(records):
        cells = (escape(str(cell)) for cell in (row.quality, *row.steps))
        lines.append(f"| {escape(row.model)} | {' | '.join(cells)} |")
    return [*lines, "", escape(LEGEND)]


def _notes(title: str, found: Sequence[Note]) -> list[str]:
    if not found:
        return []
    lines = [f"## {title}", ""]
    for note in found:
        whom = f" ({note.whom})" if note.whom else ""
        hint = f" Hint: {note.hint}" if note.hint else ""
        lines.append(f"- {escape(note.text + whom + hint)}")
    return lines
