"""A labelled grid of shares as small bars, for a terminal: one row a model, one column a group."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from effaudit.renderers._layout import WIDTH, bar, left, right, shorten
from effaudit.renderers._shares import Share, Shares

_NAME_WIDTH = 13
_BAR_WIDTH = 5
_CELL_WIDTH = _BAR_WIDTH + len(" 100")
_MAX_HEAD = 14
_GAP = 2


def bar_grid(
    title: str, models: Sequence[Shares], value: Callable[[Share], float | None], width: int = WIDTH
) -> list[str]:
    """`value` of each share, in percent; columns that do not fit side by side go on below."""
    groups = list(dict.fromkeys(share.group for model in models for share in model.shares))
    size = _GAP + max(_CELL_WIDTH, min(_MAX_HEAD, max(map(len, groups), default=0)))
    fitting = max(1, (width - _NAME_WIDTH) // size)
    lines = [title] if groups else []
    for start in range(0, len(groups), fitting):
        lines += _block(models, groups[start : start + fitting], value, size)
    return lines


def _block(
    models: Sequence[Shares], groups: Sequence[str], value: Callable[[Share], float | None], size: int
) -> list[str]:
    head = " " * _NAME_WIDTH + "".join(right(shorten(group, size - _GAP), size) for group in groups)
    lines = [head.rstrip()]
    for model in models:
        known = {share.group: value(share) for share in model.shares}
        cells = (right(_cell(known.get(group)), size) for group in groups)
        lines.append((left(model.model, _NAME_WIDTH) + "".join(cells)).rstrip())
    return lines


def _cell(share: float | None) -> str:
    if share is None:
        return "–"
    return f"{bar(share, _BAR_WIDTH)}{right(str(round(100 * share)), _CELL_WIDTH - _BAR_WIDTH)}"
