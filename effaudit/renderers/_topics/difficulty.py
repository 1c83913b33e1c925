"""Whether a model spends more on harder examples: what runs and what is right, by difficulty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from effaudit.difficulty import follows
from effaudit.ladder import is_reference
from effaudit.record import AuditRecord
from effaudit.renderers._cells import NOTHING, Cell, Table, count, percent, quantity, text
from effaudit.renderers._layout import shorten
from effaudit.renderers._shares import Examples, difficulty_in, effort, levels_of
from effaudit.renderers._topics import _style
from effaudit.renderers._topics._drawing import Drawing
from effaudit.stats import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS: Mapping[str, str] = {
    "loss": "loss",
    "head_fraction": "k/H",
    "alpha_hard": "alpha (hard)",
    "exit_layer": "exit layer",
    "n_tokens": "tokens",
}


def table(records: Sequence[AuditRecord], examples: Examples) -> Table:
    """Every model at every level."""
    levels = [(record, row) for record in records for row in levels_of(record, records, examples)]
    used = [c for c in _COLUMNS if any(getattr(row, c) is not None for _, row in levels)]
    lines: list[tuple[Cell, ...]] = []
    for record, row in levels:
        figures = (quantity(getattr(row, column)) for column in used)
        cost = quantity(row.flops_routed, "FLOP")
        runs = percent(effort(row, record))
        lines.append(
            (
                text(record.model.name),
                text(row.level),
                count(row.n_examples),
                runs,
                percent(row.accuracy),
                *figures,
                cost,
            )
        )
    heads = ("model", "difficulty", "examples", "share that runs", "accuracy", *(_COLUMNS[c] for c in used))
    return Table("By difficulty of the examples", (*heads, "FLOPs an example"), tuple(lines))


def following(records: Sequence[AuditRecord], examples: Examples) -> Table:
    """Whether what a model spends follows difficulty, and whether it does where length is held fixed."""
    lines: list[tuple[Cell, ...]] = []
    for record in records:
        difficulty = difficulty_in(record, records, examples)
        if difficulty is None or is_reference(record, records):
            continue
        for row in follows(examples[record.model.name], difficulty):
            rhos = (_rho(row.rho), _rho(row.given_length), _rho(row.of_length))
            verdict = text(_verdict(row.given_length or row.rho))
            lines.append((text(record.model.name), text(row.effort), text(row.difficulty), *rhos, verdict))
    heads = (
        "model",
        "spends",
        "difficulty",
        "Spearman's rho [95 %]",
        "length held fixed",
        "rho with length",
        "follows",
    )
    return Table("Does what is spent follow difficulty?", heads, tuple(lines))


def _verdict(rho: Interval) -> str:
    if not rho.excludes(0):
        return "in doubt"
    return "yes" if rho.value > 0 else "inversely"


def _rho(found: Interval | None) -> Cell:
    if found is None:
        return Cell(NOTHING)
    return Cell(f"{found.value:+.2f} [{found.low:+.2f}, {found.high:+.2f}]", found.value)


def drawing(records: Sequence[AuditRecord], examples: Examples) -> Drawing | None:
    """What runs above what is right; None where no model has examples of two difficulties."""
    tables = [(r, rows) for r in records if len(rows := levels_of(r, records, examples)) > 1]
    if not tables:
        return None

    def plot(axes: Sequence[Axes]) -> None:
        for record, rows in tables:
            look, label = _style.look(record, records), shorten(record.model.name, _style.NAME_WIDTH)
            runs = {i: share for i, row in enumerate(rows) if (share := effort(row, record)) is not None}
            right = {i: row.accuracy for i, row in enumerate(rows) if row.accuracy is not None}
            for ax, values in zip(axes, (runs, right), strict=True):
                shown = [100 * value for value in values.values()]
                ax.plot(list(values), shown, color=look.colour, marker=look.marker, linestyle=look.dash, label=label)
        longest = max((rows for _, rows in tables), key=len)
        for ax, name in zip(axes, ("share that runs (%)", "accuracy (%)"), strict=True):
            ax.set_xticks(range(len(longest)), [row.level for row in longest])
            ax.set_ylabel(name)
            ax.grid()
        axes[0].set_ylim(-3, 105)
        axes[1].set_xlabel("difficulty of the examples, the easiest first")
        axes[1].legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.35), columnspacing=1.0)

    alt = (
        "One line a model: the share of its heads, tokens or layers that runs, and its accuracy, by difficulty of the "
        "examples. A model that adapts rises in the upper part"
    )
    return Drawing("difficulty", "Budget by difficulty", alt, table(records, examples), plot, n_axes=2, height_in=4.8)
