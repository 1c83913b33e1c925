"""The side-by-side comparison for a terminal of 80 columns or more, readable without colour."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.text import Text

from effaudit import units
from effaudit.ladder import is_reference
from effaudit.record import AuditRecord
from effaudit.renderers import _blocks
from effaudit.renderers._control_block import control_block
from effaudit.renderers._in_depth import headers, notes, render_profile
from effaudit.renderers._layout import WIDTH, shorten, wrap
from effaudit.renderers._per_element import per_element
from effaudit.renderers._sentence import sentence
from effaudit.renderers._shares import Examples
from effaudit.renderers._side_by_side import side_by_side
from effaudit.renderers._sweep import is_sweep, sweep_blocks
from effaudit.renderers._table import MARKS
from effaudit.renderers._verdicts import render_changes, render_gate
from effaudit.renderers._words import ABSOLUTES, cautions, missing, obstacles

__all__ = ["SUFFIX", "columns", "render", "render_changes", "render_gate", "render_profile", "show"]

SUFFIX = ".txt"
MAX_WIDTH = 160  # wider, a line's ends are too far apart to read


def render(records: Sequence[AuditRecord], examples: Examples | None = None, width: int = WIDTH) -> str:
    """The comparison as plain text, the conclusions first; `examples` are the per-example tables by model name."""
    if not records:
        return "no records\n"
    if is_sweep(records):
        notices = [notes("Cautions", cautions(records)), notes("Not available", missing(records))]
        blocks = [headers(records), *sweep_blocks(records, width), *notices]
        return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"
    told = [sentence(record, records) for record in records]
    blocks = [
        headers(records),
        _reference_block(records),
        side_by_side(records, width),
        [line for text in told for line in wrap(text, "", "  ")],
        [line for text in obstacles(records) for line in wrap(f"Mind: {text}", "", "  ")],
        _blocks.ladder_block(records),
        _blocks.published_block(records),
        _blocks.denominator_block(records, width),
        per_element(records),
        _blocks.match_block(records),
        control_block(records),
        _blocks.difficulty_block(records, examples or {}, width),
        _blocks.following_block(records, examples or {}),
        _blocks.layer_block(records, width),
        _blocks.token_class_block(records, width),
        notes("Cautions", cautions(records)),
        notes("Not available", missing(records)),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def columns(file: TextIO | None = None) -> int:
    """How wide the output may be: the terminal's width from 80 on, 80 where there is no terminal."""
    file = sys.stdout if file is None else file
    if not file.isatty():
        return WIDTH
    return max(WIDTH, min(MAX_WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns))


def show(text: str, file: TextIO | None = None) -> None:
    """Prints rendered text, coloured only on a terminal that wants it (NO_COLOR), and safe for its encoding."""
    file = sys.stdout if file is None else file
    encoding = getattr(file, "encoding", None) or "utf-8"
    safe = text.encode(encoding, "replace").decode(encoding)
    console = Console(file=file, highlight=False, no_color="NO_COLOR" in os.environ, soft_wrap=True)
    styled = Text(safe.removesuffix("\n"))
    # By the mark of the verdict; green and red are the terminal's own, so that they suit its background.
    styled.highlight_regex(r"(?m)\S+( %)? [cm~]\+(?=\s|$)", "green")
    styled.highlight_regex(r"(?m)\S+( %)? [cm~]!(?=\s|$)", "red")
    styled.highlight_regex(_TITLES, "bold")
    console.print(styled)


_TITLES = (
    r"(?m)^(Cautions|Not available|Matched|Controls|From claim to clock|Published, against dense there"
    r"|FLOPs saved, as a share of three wholes|What runs, by difficulty of the examples|Follows difficulty\?"
    r"|Skipped by layer|Skipped by class of tokens)(?!\w)"
)


def _reference_block(records: Sequence[AuditRecord]) -> list[str]:
    """The absolute figures of the dense models, which everything below is relative to."""
    lines = []
    for record in records:
        if not is_reference(record, records):
            continue
        lines.append(f"{shorten(record.model.name, 50)}, the reference")
        for name, label in ABSOLUTES:
            m = record.get(name)
            if m is not None:
                value = "" if m.value is None else units.quantity(m.value, m.unit)
                lines.append(f"  {label:<18} {value:>11} {MARKS[m.source]}")
    return lines
