"""How all figures look: colours that colour-blind readers tell apart, on light and on dark, with shapes beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from effaudit.ladder import is_reference
from effaudit.record import AuditRecord
from effaudit.renderers._layout import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, PAPER = "#010203", "#fdfefc"  # stand for the page's own colours until a figure is written
LIGHT_INK, LIGHT_PAPER = "#1b1f24", "#ffffff"

# Hues of Okabe and Ito, shifted so that each keeps a contrast of 3 to its background (WCAG 1.4.11):
# drawn in the first, shown in the second on dark pages.
SERIES = (
    ("#0072b2", "#58aee8"),
    ("#b85c00", "#f2a65a"),
    ("#007f5f", "#3fc99f"),
    ("#a3487c", "#e694c0"),
    ("#6b6200", "#d6c84a"),
    ("#5a54b5", "#a9a5f2"),
)
STEPS = (
    ("#5b9bc8", "#3d7fae"),
    ("#2c7fb8", "#5aa7db"),
    ("#0b5394", "#9fd0f5"),
    ("#b85c00", "#f2a65a"),
    ("#8a3b12", "#e0764a"),
)
GREY = ("#6e7781", "#8b949e")
DARK_OF = dict((*SERIES, *STEPS, GREY))
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (3, 1)))
HATCHES = ("", "//", "..", "\\\\", "xx", "++")

NAME_WIDTH = 16  # characters of a model's name
LINE_WIDTH = 50  # characters that fit below a figure

RC: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "text.parse_math": False,  # a `$` in a model's name is a dollar sign
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.facecolor": PAPER,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.useoffset": False,
    "axes.axisbelow": True,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": INK,
    "grid.alpha": 0.15,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 9,
}


@dataclass(frozen=True)
class Look:
    """One model's colour, marker, dashes and hatch: the same in every figure."""

    colour: str
    marker: str
    dash: Any
    hatch: str


REFERENCE_LOOK = Look(INK, "*", "-", "")


def look(record: AuditRecord, records: Sequence[AuditRecord]) -> Look:
    """The reference in the colour of the text, the others in order of the records."""
    if is_reference(record, records):
        return REFERENCE_LOOK
    others = [other for other in records if not is_reference(other, records)]
    place = next(i for i, other in enumerate(others) if other is record)
    turn, i = divmod(place, len(SERIES))  # from the second turn on, another marker on the same colour
    shape = (i + turn) % len(MARKERS)
    return Look(SERIES[i][0], MARKERS[shape], DASHES[shape], HATCHES[shape])


def name_columns(ax: Axes, names: Sequence[str]) -> None:
    """Names below columns 0, 1, …; slanted where they would run into each other."""
    shown = [shorten(name, NAME_WIDTH) for name in names]
    ax.set_xticks(range(len(names)), shown)
    if max(map(len, shown), default=0) * len(shown) > LINE_WIDTH:
        ax.tick_params(axis="x", labelrotation=25)
        for label in ax.get_xticklabels():
            label.set(horizontalalignment="right", rotation_mode="anchor")
