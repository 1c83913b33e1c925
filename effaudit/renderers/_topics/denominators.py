"""The same cut in FLOPs as a share of three wholes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from effaudit.denominators import cuts
from effaudit.ladder import is_reference
from effaudit.record import AuditRecord
from effaudit.renderers._cells import Cell, Table, change, text
from effaudit.renderers._shares import Share, Shares
from effaudit.renderers._topics import _style
from effaudit.renderers._topics._drawing import Drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def saved(records: Sequence[AuditRecord]) -> tuple[Shares, ...]:
    """By whole, what each model but the reference still runs; models of which attention is not known are left out."""
    found = []
    for record in records:
        known = cuts(record)
        if not is_reference(record, records) and any(cut.change is not None for cut in known[:-1]):
            shares = (Share(cut.of, None if cut.change is None else 1 + cut.change) for cut in known)
            found.append(Shares(record.model.name, tuple(shares)))
    return tuple(found)


def drawing(records: Sequence[AuditRecord]) -> Drawing | None:
    """Bars a model, one a whole; None where no model's attention was counted apart."""
    models = saved(records)
    if not models:
        return None
    wholes = [share.group for share in models[0].shares]

    def plot(axes: Sequence[Axes]) -> None:
        ax = axes[0]
        for i, whole in enumerate(wholes):
            known = [(x, share) for x, model in enumerate(models) if (share := model.shares[i].skipped) is not None]
            places = [x + 0.26 * (i - 1) for x, _ in known]
            bars = ax.bar(places, [100 * share for _, share in known], 0.24, color=_style.STEPS[i][0], label=whole)
            ax.bar_label(bars, fmt="%.0f", fontsize=8)
        ax.axhline(0, color=_style.INK, linewidth=0.8)
        _style.name_columns(ax, [model.model for model in models])
        ax.set_ylabel("FLOPs saved (%)")
        ax.grid(axis="y")
        ax.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0), columnspacing=1.0)

    alt = "Bars for each model: FLOPs saved, as a share of attention's core, of attention, of the whole model"
    return Drawing("denominators", "One cut, three denominators", alt, table(records), plot, height_in=3.0)


def table(records: Sequence[AuditRecord]) -> Table:
    lines: list[tuple[Cell, ...]] = []
    for record in records:
        if not is_reference(record, records):
            lines += [(text(record.model.name), text(c.of), change(c.change), text(c.reason)) for c in cuts(record)]
    heads = ("model", "of", "FLOPs against all of it on", "how, or why not")
    return Table("FLOPs by denominator", heads, tuple(lines))
