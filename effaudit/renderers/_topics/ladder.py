"""From claim to clock: each step of the ladder with its interval and what was lost since the step before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from effaudit import units
from effaudit.ladder import STEPS, Ladder, Rung, Step, ladder
from effaudit.published import METHODS, published
from effaudit.record import AuditRecord
from effaudit.renderers._cells import MARKS, NOTHING, Cell, Table, change, interval, text
from effaudit.renderers._layout import shorten
from effaudit.renderers._topics import _style
from effaudit.renderers._topics._drawing import Drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_CHANGE = 200.0  # per cent; one model that is ten times slower must not flatten all others


def ladders(records: Sequence[AuditRecord]) -> tuple[Ladder, ...]:
    """Of every model but the reference."""
    return tuple(steps for record in records if not (steps := ladder(record, records)).is_reference)


def table(records: Sequence[AuditRecord]) -> Table:
    """Every rung with its interval, what was lost since the rung before, and its origin or the reason it is missing."""
    lines: list[tuple[Cell, ...]] = []
    for steps in ladders(records):
        lost = {leak.end: leak.lost for leak in steps.leaks}
        lines += [_line(steps.model, rung.step, rung, lost.get(rung.step)) for rung in steps.rungs]
        if steps.routable.change is not None:
            lines.append(_line(steps.model, "FLOPs at best", steps.routable, None))
    heads = (
        "model",
        "step",
        "against the reference",
        "95 % interval (%)",
        "lost since the step before",
        "how, or why not",
    )
    return Table("The ladder in figures", heads, tuple(lines))


def reference(records: Sequence[AuditRecord]) -> Table:
    """What the papers published, where a profile asks for it, beside the changes of the same steps here."""
    names = dict.fromkeys(str(name) for record in records for name in record.profile.get("reference") or ())
    lines: list[tuple[Cell, ...]] = []
    found = ladders(records)
    variants = {record.model.name: record.model.variant for record in records}
    for row in published(tuple(name for name in names if name in METHODS)):
        own = [steps for steps in found if variants[steps.model] == row.method]
        for step in row.steps:
            lines.append(
                (text(row.name), text(step.step), change(step.change), _here(own, step.step), text(step.source))
            )
    heads = ("published", "step", "against dense", "here", "source, or why not")
    return Table("What the papers published", heads, tuple(lines))


def _here(own: Sequence[Ladder], step: Step) -> Cell:
    known = [(steps.model, changed) for steps in own if (changed := steps[step].change) is not None]
    return text(", ".join(f"{model} {units.signed_percent(changed)}" for model, changed in known) or NOTHING)


def drawing(records: Sequence[AuditRecord]) -> Drawing:
    found = ladders(records)

    def plot(axes: Sequence[Axes]) -> None:
        ax = axes[0]
        for i, step in enumerate(STEPS):
            rungs = [(x, steps[step]) for x, steps in enumerate(found)]
            known = [(x, 100 * r.change, r.interval) for x, r in rungs if r.change is not None]
            if not known:  # an empty series would stand in the legend in a colour of its own
                continue
            places = [x + 0.16 * (i - 2) for x, _, _ in known]
            heights = [min(height, MAX_CHANGE) for _, height, _ in known]
            ax.bar(places, heights, 0.15, color=_style.STEPS[i][0], label=step)
            for place, (_, _, span) in zip(places, known, strict=True):
                if span is not None:
                    ax.plot([place, place], [min(100 * end, MAX_CHANGE) for end in span], color=_style.INK, linewidth=1)
        ax.axhline(0, color=_style.INK, linewidth=0.8)
        names = [shorten(steps.model, _style.NAME_WIDTH) for steps in found]
        ax.set_xticks(range(len(found)), names, rotation=15 if len(found) > 3 else 0)
        ax.set_ylabel("change against the reference (%)")
        ax.grid(axis="y")
        if ax.get_legend_handles_labels()[1]:  # of the dense model alone there is nothing to tell apart
            ax.legend(ncols=len(STEPS), loc="lower center", bbox_to_anchor=(0.5, 1.0), columnspacing=1.0)

    return Drawing("ladder", "From claim to clock", _alt(found), table(records), plot)


def _alt(found: Sequence[Ladder]) -> str:
    told = "; ".join(f"{steps.model} {_told(steps)}" for steps in found)
    what = "what it claims, skips, executes, its latency and energy, as change against the reference"
    return f"Bars for each model: {what}. {told}"


def _told(steps: Ladder) -> str:
    known = [f"{r.step} {units.signed_percent(r.change)}" for r in steps.rungs if r.change is not None]
    return ", ".join(known) or "nothing comparable"


def _line(model: str, step: str, rung: Rung, lost: float | None) -> tuple[Cell, ...]:
    points = Cell("") if lost is None else Cell(units.points(lost), lost)
    mark = MARKS[rung.source] if rung.change is not None else ""
    return text(model), text(step), change(rung.change, mark), interval(rung.interval), points, text(rung.reason)
