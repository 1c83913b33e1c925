"""A heat map of shares, each cell with its figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from effaudit.renderers._layout import shorten
from effaudit.renderers._topics import _style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# From paper-like to deep blue, the figure in the colour that stands out from it: the same on light and on dark pages.
_LOW, _HIGH = (0xF3, 0xF0, 0xE6), (0x0B, 0x3C, 0x6F)
_ON_LOW, _ON_HIGH = "#000000", "#ffffff"
_TURN = 0.66  # share up to which black figures are read better
_UNKNOWN = "#9a9a9a"


def heat_map(ax: Axes, columns: Sequence[str], lines: Sequence[tuple[str, Sequence[float | None]]]) -> None:
    """`lines` from top to bottom: the label and a share for each column, None where there is none."""
    from matplotlib.patches import Rectangle

    for y, (_, shares) in enumerate(lines):
        for x, share in enumerate(shares):
            place = (x - 0.5, y - 0.5)
            ax.add_patch(Rectangle(place, 1, 1, facecolor=_colour(share), edgecolor=_style.PAPER, linewidth=1))
            ink = _ON_HIGH if share is not None and share > _TURN else _ON_LOW
            shown = "–" if share is None else f"{100 * share:.0f}"
            ax.text(x, y, shown, ha="center", va="center", color=ink, fontsize=8)
    ax.set_xlim(-0.5, len(columns) - 0.5)
    ax.set_ylim(len(lines) - 0.5, -0.5)
    ax.set_xticks(range(len(columns)), columns)
    ax.set_yticks(range(len(lines)), [shorten(label, _style.NAME_WIDTH) for label, _ in lines])
    ax.tick_params(length=0)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)


def _colour(share: float | None) -> str:
    if share is None:
        return _UNKNOWN
    at = min(max(share, 0.0), 1.0)
    return "#" + "".join(f"{round(low + at * (high - low)):02x}" for low, high in zip(_LOW, _HIGH, strict=True))
