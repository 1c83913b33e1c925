"""How text fits a terminal of 80 columns: cleaning, wrapping, padding, bars."""

from __future__ import annotations

import re

from rich.cells import cell_len, chop_cells, set_cell_size

WIDTH = 80
_NO_BREAK = "\u00a0"
_KEPT_TOGETHER = re.compile(r"(?<=\d) (?=%)")  # a number and its per cent sign


def printable(text: str) -> str:
    """`text` on one line without control characters, whatever a name or a path brings along."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text)


def wrap(text: str, first: str = "", rest: str | None = None, width: int = WIDTH) -> list[str]:
    """`text` in lines of at most `width` cells, the first led by `first`, the others by `rest` (default: as wide)."""
    rest = " " * cell_len(first) if rest is None else rest
    lines, line, is_empty = [], first, True
    for word in _pieces(printable(text), width - max(cell_len(first), cell_len(rest))):
        if not is_empty and cell_len(line) + 1 + cell_len(word) > width:
            lines.append(line)
            line, is_empty = rest, True
        line += word if is_empty else f" {word}"
        is_empty = False
    return [row.replace(_NO_BREAK, " ").rstrip() for row in (*lines, line)]


def _pieces(text: str, width: int) -> list[str]:
    words = _KEPT_TOGETHER.sub(_NO_BREAK, text).split(" ")
    return [piece for word in words if word for piece in chop_cells(word, max(1, width))]


def left(text: str, width: int) -> str:
    """`text` padded on the right to `width` cells, shortened in the middle where it is longer."""
    return set_cell_size(shorten(text, width), width)


def right(text: str, width: int) -> str:
    """`text` padded on the left to `width` cells."""
    return " " * max(0, width - cell_len(text)) + text


def shorten(text: str, width: int) -> str:
    """`text` with its middle replaced by an ellipsis where it is wider than `width` cells."""
    text = printable(text)
    if cell_len(text) <= width:
        return text
    head = set_cell_size(text, (width - 1) // 2).rstrip()
    tail = text
    while cell_len(tail) > width - 1 - cell_len(head):
        tail = tail[1:]
    return f"{head}…{tail}"


def bar(share: float, width: int) -> str:
    """A bar of `width` characters filled to `share`, with `+` below zero; ASCII, so that every console can show it."""
    filled = round(min(1.0, abs(share)) * width)
    return ("#" if share > 0 else "+") * filled + "." * (width - filled)
