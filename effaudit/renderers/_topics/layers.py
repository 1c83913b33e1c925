"""Where a model skips: the share that each layer leaves out, and where examples and tokens exit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from effaudit.record import AuditRecord
from effaudit.renderers._cells import Cell, Table, percent, text
from effaudit.renderers._layout import shorten
from effaudit.renderers._shares import by_layer
from effaudit.renderers._topics import _style
from effaudit.renderers._topics._drawing import Drawing
from effaudit.renderers._topics._heat import heat_map

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def table(records: Sequence[AuditRecord]) -> Table:
    """What each layer of each model leaves out, and what its gates say."""
    lines: list[tuple[Cell, ...]] = []
    for model in by_layer(records):
        for share in model.shares:
            said = None if share.claimed is None else 1 - share.claimed
            shares = (percent(share.skipped), percent(said), percent(share.exits))
            lines.append((text(model.model), Cell(share.group, float(share.group)), *shares))
    heads = ("model", "layer", "skipped", "gates say", "exits here")
    return Table("By layer", heads, tuple(lines))


def skip_drawing(records: Sequence[AuditRecord]) -> Drawing | None:
    """A row a model, a column a layer."""
    models = by_layer(records)
    layers = sorted({share.group for model in models for share in model.shares}, key=int)
    if not layers:
        return None
    skipped = [(model.model, {share.group: share.skipped for share in model.shares}) for model in models]

    def plot(axes: Sequence[Axes]) -> None:
        heat_map(axes[0], layers, [(name, [shares.get(layer) for layer in layers]) for name, shares in skipped])
        axes[0].set_xlabel("layer")

    alt = "Heat map of the share in per cent that each layer of each model leaves out, by the hard rule: darker is more"
    height = 1.0 + 0.36 * len(models)
    return Drawing("layers", "Skipped by layer (%)", alt, table(records), plot, height_in=height)


def exit_drawing(records: Sequence[AuditRecord]) -> Drawing | None:
    """Where examples or tokens leave, as bars; None without a model that exits."""
    leaving = [record for record in records if any(row.exit_share is not None for row in record.layers)]
    if not leaving:
        return None

    def plot(axes: Sequence[Axes]) -> None:
        ax, width = axes[0], 0.8 / len(leaving)
        for i, record in enumerate(leaving):
            look, label = _style.look(record, records), shorten(record.model.name, _style.NAME_WIDTH)
            places = [row.layer + width * (i - (len(leaving) - 1) / 2) for row in record.layers]
            heights = [100 * (row.exit_share or 0.0) for row in record.layers]
            bars = ax.bar(
                places, heights, width, label=label, color=look.colour, hatch=look.hatch, edgecolor=_style.PAPER
            )
            ax.bar_label(bars, fmt="%.0f", fontsize=8)
        ax.set_xticks(sorted({row.layer for record in leaving for row in record.layers}))
        ax.set_xlabel("layers run before leaving")
        ax.set_ylabel("share that leaves (%)")
        ax.grid(axis="y")
        ax.legend(ncols=min(3, len(leaving)), loc="lower center", bbox_to_anchor=(0.5, 1.0))

    rows = [(record.model.name, row) for record in leaving for row in record.layers]
    lines = tuple((text(name), Cell(str(row.layer), row.layer), percent(row.exit_share)) for name, row in rows)
    shown = Table("Exits", ("model", "layers run before leaving", "share that leaves"), lines)
    alt = "Histogram of exits: the share of examples or tokens that leave after each layer, bars of one colour a model"
    return Drawing("exits", "Where the answers leave", alt, shown, plot, height_in=3.0)
