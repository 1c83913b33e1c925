"""Lying bars, a row a model, made of parts of one unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from effaudit.renderers._layout import shorten
from effaudit.renderers._topics import _style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Part:
    """A stretch of a bar; `is_hatched` sets apart what is of another provenance than the rest."""

    name: str
    value: float
    is_hatched: bool = False


@dataclass(frozen=True)
class Bar:
    name: str
    parts: tuple[Part, ...]


def stacked_bars(ax: Axes, bars: Sequence[Bar], names: Sequence[str], label: str, scale: float) -> None:
    """Parts of one of `names` have one colour in all bars, others are grey; `scale` divides the values."""
    labelled: set[str] = set()
    for y, bar in enumerate(bars):
        start = 0.0
        for part in bar.parts:
            colour = _colour(part.name, names)
            hatch = "///" if part.is_hatched else ""
            legend = None if part.name in labelled else part.name
            labelled.add(part.name)
            length = part.value / scale
            ax.barh(y, length, 0.62, left=start, color=colour, hatch=hatch, edgecolor=_style.PAPER, label=legend)
            start += length
    ax.set_yticks(range(len(bars)), [shorten(bar.name, _style.NAME_WIDTH) for bar in bars])
    ax.set_ylim(len(bars) - 0.5, -0.5)
    ax.set_xlabel(label)
    ax.grid(axis="x")
    handles, labels = ax.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda i: names.index(labels[i]) if labels[i] in names else len(names))
    shown = [handles[i] for i in order], [labels[i] for i in order]
    ax.legend(*shown, ncols=min(3, len(labelled)), loc="lower center", bbox_to_anchor=(0.5, 1.0), columnspacing=1.0)


def _colour(name: str, names: Sequence[str]) -> str:
    return _style.SERIES[names.index(name) % len(_style.SERIES)][0] if name in names else _style.GREY[0]


def height_in(n_bars: int) -> float:
    return 1.3 + 0.34 * n_bars
