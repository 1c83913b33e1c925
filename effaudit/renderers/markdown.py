"""The side-by-side comparison in GitHub-flavoured Markdown, for pull requests."""

from __future__ import annotations

import re
from collections.abc import Sequence

from effaudit.record import AuditRecord
from effaudit.renderers import _control_words as control_words
from effaudit.renderers._cells import Table
from effaudit.renderers._layout import printable
from effaudit.renderers._sentence import sentence
from effaudit.renderers._shares import Examples
from effaudit.renderers._table import LEGENDS, headings, rows
from effaudit.renderers._topics import controls, difficulty, ladder, layers, matches, sweep, token_classes
from effaudit.renderers._words import Note, cautions, missing, obstacles

SUFFIX = ".md"

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~<>&$@])")


def render(records: Sequence[AuditRecord], examples: Examples | None = None) -> str:
    """The sentences and the table in view, what they rest on folded away."""
    told = [sentence(record, records) for record in records]
    tables = [
        controls.table(records),
        ladder.table(records),
        ladder.reference(records),
        difficulty.table(records, examples or {}),
        difficulty.following(records, examples or {}),
        layers.table(records),
        token_classes.table(records),
    ]
    blocks = [
        ["# effaudit"],
        _list(told),
        *([*_head(table.heads), *_body(table)] for table in sweep.tables(records)),
        _list(sweep.lines(records)),
        _side_by_side(records),
        [f"**Mind:** {escape(text)}" for text in obstacles(records)],
        _titled("Published", _list(ladder.sources(records))),
        _titled("Matched", _list(matches.lines(records))),
        _titled("Controls", _list(control_words.lines(records))),
        *(_folded(table) for table in tables if table.rows),
        _titled("Cautions", _notes(cautions(records))),
        _titled("Not available", _notes(missing(records))),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def escape(text: str) -> str:
    """`text` as itself: on one line, with nothing in it that Markdown or HTML would read."""
    return _SPECIAL.sub(r"\\\1", printable(text)).replace("\\<", "&lt;").replace("\\>", "&gt;").replace("\\&", "&amp;")


def _list(texts: Sequence[str]) -> list[str]:
    return [f"- {escape(text)}" for text in texts]


def _titled(title: str, lines: Sequence[str]) -> list[str]:
    return [f"## {title}", "", *lines] if lines else []


def _side_by_side(records: Sequence[AuditRecord]) -> list[str]:
    heads = ("model", *headings(records))
    lines = _head(heads)
    for row in rows(records):
        cells = (escape(str(cell)) for cell in (row.quality, *row.steps))
        lines.append(f"| {escape(row.model)} | {' | '.join(cells)} |")
    return [*lines, "", escape("; ".join(LEGENDS))]


def _head(heads: Sequence[str]) -> list[str]:
    return ["| " + " | ".join(map(escape, heads)) + " |", "|---|" + "---:|" * (len(heads) - 1)]


def _body(table: Table) -> list[str]:
    return ["| " + " | ".join(escape(cell.text) for cell in row) + " |" for row in table.rows]


def _folded(table: Table) -> list[str]:
    summary = f"<details><summary>{escape(table.caption)}</summary>"
    return [summary, "", *_head(table.heads), *_body(table), "", "</details>"]


def _notes(found: Sequence[Note]) -> list[str]:
    lines = []
    for note in found:
        whom = f" ({note.whom})" if note.whom else ""
        hint = f" Hint: {note.hint}" if note.hint else ""
        lines.append(f"{note.text}{whom}{hint}")
    return _list(lines)
