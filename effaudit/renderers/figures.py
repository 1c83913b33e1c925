"""The figures of a report as SVG: the ladder, quality against FLOPs, rates by layer, effort by difficulty."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from effaudit.comparison import workload_difference
from effaudit.difficulty import DifficultyRow, by_difficulty
from effaudit.example_table import ExampleTable
from effaudit.files import write_atomically
from effaudit.ladder import STEPS, Step, ladder, n_layers
from effaudit.record import AuditRecord, LayerRow
from effaudit.renderers._layout import shorten
from effaudit.renderers._words import main_quality, quality_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIX = ".svg"

Examples = Mapping[str, ExampleTable]  # by model name

# Okabe and Ito's palette, told apart by colour-blind readers; without its yellow and black, which one of
# a light and a dark page would swallow.
MODEL_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9")
STEP_COLOURS: Mapping[Step, str] = {
    "claimed": "#8ab6d6",
    "skipped": "#4a90c4",
    "FLOPs": "#1f6fa8",
    "latency": "#e69f00",
    "energy": "#d55e00",
}
_INK = "#010203"  # stands for the page's own text colour until the SVG is written
_NAME_WIDTH = 16
_MAX_CHANGE = 200.0  # per cent; one model that is ten times slower must not flatten all others

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "text.parse_math": False,  # a `$` in a model's name is a dollar sign
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.useoffset": False,
    "axes.axisbelow": True,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "grid.color": _INK,
    "grid.alpha": 0.15,
    "legend.frameon": False,
}


@dataclass(frozen=True)
class Drawing:
    """One figure: a complete SVG document, its caption, and the text that says what it shows."""

    name: str
    title: str
    alt: str
    svg: str

    @property
    def inline(self) -> str:
        """The `<svg>` element alone, to stand inside an HTML page, its ids its own."""
        element = self.svg[self.svg.index("<svg") :]
        element = re.sub(r'(\bid=")', rf"\1{self.name}-", element)
        return re.sub(r'(url\(#|xlink:href="#)', rf"\1{self.name}-", element)


def render(records: Sequence[AuditRecord]) -> str:
    """The ladder of all models as one SVG document."""
    return _ladder(records).svg


def write_figures(records: Sequence[AuditRecord], folder: Path, examples: Examples | None = None) -> list[Path]:
    """Writes every figure that the records can fill as `<name>.svg` and says where.

    Raises EffauditError when a file cannot be written.
    """
    paths = []
    for drawing in draw(records, examples):
        path = folder / f"{drawing.name}{SUFFIX}"
        write_atomically(path, drawing.svg)
        paths.append(path)
    return paths


def draw(records: Sequence[AuditRecord], examples: Examples | None = None) -> list[Drawing]:
    """Every figure that the records can fill; the same bytes for the same records."""
    found = [_ladder(records), _quality(records), _layers(records), _difficulty(records, examples or {})]
    return [drawing for drawing in found if drawing is not None]


def _ladder(records: Sequence[AuditRecord]) -> Drawing:
    ladders = [steps for record in records if not (steps := ladder(record, records)).is_reference]

    def plot(axes: Sequence[Axes]) -> None:
        ax = axes[0]
        for i, step in enumerate(STEPS):
            rungs = [(x, steps[step]) for x, steps in enumerate(ladders)]
            known = [(x, 100 * r.change, r.interval) for x, r in rungs if r.change is not None]
            places = [x + 0.16 * (i - 2) for x, _, _ in known]
            heights = [_clipped(change) for _, change, _ in known]
            ax.bar(places, heights, 0.15, color=STEP_COLOURS[step], label=step)
            for place, (_, _, interval) in zip(places, known, strict=True):
                if interval is not None:
                    ends = [_clipped(100 * end) for end in interval]
                    ax.plot([place, place], ends, color=_INK, linewidth=1)
        ax.axhline(0, color=_INK, linewidth=0.8)
        ax.set_xticks(range(len(ladders)), [shorten(steps.model, _NAME_WIDTH) for steps in ladders])
        ax.set_ylabel("change against dense (%)")
        ax.grid(axis="y")
        ax.legend(ncols=len(STEPS), loc="lower center", bbox_to_anchor=(0.5, 1.0), columnspacing=1.0)

    alt = "Bars for each model: what it claims, skips, executes, its latency and energy, as change against dense"
    return Drawing("ladder", "From claim to clock", alt, _svg("ladder", plot))


def _quality(records: Sequence[AuditRecord]) -> Drawing | None:
    points = []
    for record in records:
        quality, flops = main_quality(record), _finite(record.value("flops.executed"))
        if quality is not None and flops is not None and (value := _finite(quality.value)) is not None:
            points.append((record, quality_name(quality), flops, value))
    alike = [p for p in points if p[1] == points[0][1] and not workload_difference(points[0][0], p[0])]
    if len(alike) < 2:
        return None
    name = alike[0][1]

    def plot(axes: Sequence[Axes]) -> None:
        ax = axes[0]
        for record, _, flops, value in alike:
            ax.plot(flops / 1e9, value, "o", color=_colour(record, records), markersize=8)
            label = shorten(record.model.name, _NAME_WIDTH)
            ax.annotate(label, (flops / 1e9, value), xytext=(7, 5), textcoords="offset points")
        ax.margins(0.18)
        ax.set_xlabel("executed GFLOP in one pass over the workload")
        ax.set_ylabel(name)
        ax.grid()

    alt = f"One point a model: {name} against executed FLOPs"
    return Drawing("quality", "Quality against executed FLOPs", alt, _svg("quality", plot))


def _layers(records: Sequence[AuditRecord]) -> Drawing | None:
    lines = [(r, hard, soft) for r in records if any(rates := layer_rates(r.layers)) for hard, soft in [rates]]
    if not lines:
        return None

    def plot(axes: Sequence[Axes]) -> None:
        ax = axes[0]
        for record, hard, soft in lines:
            colour, label = _colour(record, records), shorten(record.model.name, _NAME_WIDTH)
            ax.plot(*_columns(hard), "o-", color=colour, label=label)
            ax.plot(*_columns(soft), "--", color=colour)
        ax.set_ylim(-0.03, 1.05)
        ax.set_xlabel("layer")
        ax.set_ylabel("share that runs")
        ax.set_xticks(sorted({layer for _, *rates in lines for part in rates for layer in part}))
        ax.grid()
        ax.legend(ncols=min(4, len(lines)), loc="lower center", bbox_to_anchor=(0.5, 1.0))

    alt = "One line a model: the share of heads or tokens that each layer runs, dashed what the gates say"
    return Drawing("layers", "What each layer runs (dashed: what the gates say)", alt, _svg("layers", plot))


def layer_rates(layers: Sequence[LayerRow]) -> tuple[dict[int, float], dict[int, float]]:
    """By layer, the share of heads or tokens that run (hard) and what the gates say (soft), where known."""
    hard: dict[int, float] = {}
    soft: dict[int, float] = {}
    left = 0.0
    for row in layers:
        running = None
        if row.exit_share is not None:
            running, left = 1 - left, left + row.exit_share
        kept = [share for share in (row.alpha_hard, row.head_fraction, running) if share is not None]
        said = [share for share in (row.alpha_soft, row.budget) if share is not None]
        if kept:
            hard[row.layer] = kept[0]
        if said:
            soft[row.layer] = said[0]
    return hard, soft


def _difficulty(records: Sequence[AuditRecord], examples: Examples) -> Drawing | None:
    tables = [(r, by_difficulty(examples.get(r.model.name))) for r in records]
    tables = [(record, rows) for record, rows in tables if len(rows) > 1]
    if not tables:
        return None

    def plot(axes: Sequence[Axes]) -> None:
        for record, rows in tables:
            colour, label = _colour(record, records), shorten(record.model.name, _NAME_WIDTH)
            accuracy = {i: row.accuracy for i, row in enumerate(rows) if row.accuracy is not None}
            effort = {i: share for i, row in enumerate(rows) if (share := _effort(row, record)) is not None}
            axes[0].plot(*_columns(accuracy), "o-", color=colour, label=label)
            axes[1].plot(*_columns(effort), "o-", color=colour)
        longest = max((rows for _, rows in tables), key=len)
        for ax, name in zip(axes, ("accuracy", "share that runs"), strict=True):
            ax.set_xticks(range(len(longest)), [row.level for row in longest])
            ax.set_ylim(-0.03, 1.05)
            ax.set_xlabel("difficulty")
            ax.set_ylabel(name)
            ax.grid()
        axes[0].legend(fontsize=8)

    alt = "Accuracy and the share of heads, tokens or layers that run, by difficulty of the examples, one line a model"
    return Drawing("difficulty", "By difficulty of the examples", alt, _svg("difficulty", plot, n_axes=2))


def _effort(row: DifficultyRow, record: AuditRecord) -> float | None:
    if row.exit_layer is not None:
        n = n_layers(record)
        return row.exit_layer / n if n else None
    return row.head_fraction if row.head_fraction is not None else row.alpha_hard


def _svg(name: str, plot: Callable[[Sequence[Axes]], None], n_axes: int = 1) -> str:
    """An SVG document of what `plot` draws, without a date and with ids that depend on the content alone."""
    import matplotlib
    from matplotlib.figure import Figure

    undated = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        # Glyphs are the reader's: the SVG holds text, so that DejaVu lacking one matters only to spacing.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(figsize=(7.2, 3.6), layout="constrained")
        plot(figure.subplots(1, n_axes, squeeze=False)[0])
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata=undated)
    return text.getvalue().replace(_INK, "currentColor")


def _columns(points: Mapping[int, float]) -> tuple[list[int], list[float]]:
    return list(points), list(points.values())


def _colour(record: AuditRecord, records: Sequence[AuditRecord]) -> str:
    index = next(i for i, other in enumerate(records) if other is record)
    return MODEL_COLOURS[index % len(MODEL_COLOURS)]


def _clipped(change: float) -> float:
    return min(change, _MAX_CHANGE)


def _finite(value: int | float | None) -> float | None:
    try:
        number = None if value is None else float(value)
    except OverflowError:
        return None
    return number if number is not None and isfinite(number) and abs(number) < 1e30 else None
