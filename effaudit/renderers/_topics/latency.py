"""How the time of a batch is spread: every timed batch of every model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from effaudit import stats
from effaudit.record import AuditRecord, Measurement
from effaudit.renderers._cells import Cell, Table, count, quantity, text
from effaudit.renderers._layout import shorten
from effaudit.renderers._topics import _style
from effaudit.renderers._topics._drawing import Drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_QUARTERS = (0, 25, 50, 75, 100)
_WHISKERS = (5, 95)  # percentiles
MAX_POINTS = 400  # of one model: more are thinned evenly, so that the page stays small


def drawing(records: Sequence[AuditRecord]) -> Drawing | None:
    """A box and its samples a model; None where no raw samples were kept."""
    timed = [(r, m) for r in records if (m := r.get("latency.p50")) is not None and m.samples and max(m.samples) > 0]
    if not timed:
        return None

    def plot(axes: Sequence[Axes]) -> None:
        ax = axes[0]
        for y, (record, measurement) in enumerate(timed):
            _box(ax, y, measurement.samples, _style.look(record, records).colour)
        ax.set_yticks(range(len(timed)), [shorten(record.model.name, _style.NAME_WIDTH) for record, _ in timed])
        ax.set_ylim(len(timed) - 0.5, -0.5)
        ax.set_xlim(left=0)
        ax.set_xlabel("milliseconds a batch")
        ax.grid(axis="x")

    alt = (
        "A row a model: each timed batch as a stroke, the box from the first to the third quartile with the median, "
        "the line from the 5th to the 95th percentile"
    )
    lines = tuple(_line(record, measurement) for record, measurement in timed)
    quarters = ("least", "first quartile", "median", "third quartile", "most")
    heads = ("model", "timed batches", *quarters, "median, 95 % from", "to")
    shown = Table("Time of a batch", heads, lines)
    return Drawing("latency", "How the time of a batch is spread", alt, shown, plot, height_in=1.1 + 0.45 * len(timed))


def _line(record: AuditRecord, measurement: Measurement) -> tuple[Cell, ...]:
    quarters = np.percentile(np.asarray(measurement.samples, dtype=np.float64), _QUARTERS).tolist()
    span = stats.median_interval(measurement.samples)
    ends = (span.low, span.high) if span is not None else (None, None)
    figures = (quantity(value, "s") for value in (*quarters, *ends))
    return text(record.model.name), count(len(measurement.samples)), *figures


def _box(ax: Axes, y: int, samples: Sequence[float], colour: str) -> None:
    """In milliseconds; drawn by hand, for a box plot of matplotlib's leaves the whiskers to a rule of its own."""
    values = 1000 * np.asarray(samples, dtype=np.float64)
    low, centre, high = np.percentile(values, [25, 50, 75])
    start, stop = np.percentile(values, _WHISKERS)
    shown = values[np.linspace(0, len(values) - 1, min(len(values), MAX_POINTS)).astype(int)]
    ax.plot(shown, np.full(len(shown), y + 0.3), "|", color=colour, markersize=5, alpha=0.5, markeredgewidth=0.8)
    ax.plot([start, stop], [y - 0.05, y - 0.05], color=colour, linewidth=1.2)
    ax.barh(y - 0.05, high - low, 0.34, left=low, color=colour, alpha=0.35)
    ax.plot([centre, centre], [y - 0.24, y + 0.14], color=colour, linewidth=2.2)
