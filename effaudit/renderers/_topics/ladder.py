"""From claim to clock: each step of the ladder with its interval and what was lost since the step before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from effaudit import units
from effaudit.ladder import STEPS, Ladder, Rung, Step, ladder
from effaudit.published import METHODS, Published, published
from effaudit.record import AuditRecord
from effaudit.renderers._cells import MARKS, NOTHING, Cell, Table, change, interval, text
from effaudit.renderers._topics import _style
from effaudit.renderers._topics._drawing import Drawing
from effaudit.renderers._words import control_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PUBLISHED = {True: "published, same data", False: "published"}
MAX_KEYS = 6  # of a legend, that fit beside each other
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


def references(records: Sequence[AuditRecord]) -> tuple[Published, ...]:
    """What the papers published, where a profile asks for it."""
    names = dict.fromkeys(str(name) for record in records for name in record.profile.get("reference") or ())
    return published(tuple(name for name in names if name in METHODS))


def reference(records: Sequence[AuditRecord]) -> Table:
    """The published rows beside the same steps here; of models that learned their routing."""
    found = ladders(records)
    variants = {record.model.name: record.model.variant for record in records if not control_of(record)}
    lines = []
    for row in references(records):
        asked = [step.step for step in row.steps if step.change is not None]
        own = [f"{steps.model} {_told(steps, asked)}" for steps in found if variants.get(steps.model) == row.method]
        lines.append((text(row.name), *(change(step.change) for step in row.steps), text("; ".join(own) or NOTHING)))
    return Table("What the papers published", ("against dense", *STEPS, "here"), tuple(lines))


def sources(records: Sequence[AuditRecord]) -> tuple[str, ...]:
    """A sentence a paper: where each step was published, or why there is none."""
    told: dict[str, dict[str, None]] = {}
    for row in references(records):
        steps = (f"{step.step}: {step.source}" for step in row.steps)
        told.setdefault(row.method, {}).update(dict.fromkeys(steps))
    return tuple(f"{method} as published: {'; '.join(steps)}." for method, steps in told.items())


def drawing(records: Sequence[AuditRecord]) -> Drawing:
    found = ladders(records)

    def plot(axes: Sequence[Axes]) -> None:
        ax = axes[0]
        for i, step in enumerate(STEPS):
            rungs = [(x, steps[step]) for x, steps in enumerate(found)]
            known = [(x, 100 * r.change, r.interval) for x, r in rungs if r.change is not None]
            if not known:  # an empty series would stand in the legend in a colour of its own
                continue
            places = [x + _offset(step) for x, _, _ in known]
            heights = [min(height, MAX_CHANGE) for _, height, _ in known]
            ax.bar(places, heights, 0.15, color=_style.STEPS[i][0], label=step)
            for place, (_, _, span) in zip(places, known, strict=True):
                if span is not None:
                    ax.plot([place, place], [min(100 * end, MAX_CHANGE) for end in span], color=_style.INK, linewidth=1)
        _mark_published(ax, records, found)
        ax.axhline(0, color=_style.INK, linewidth=0.8)
        _style.name_columns(ax, [steps.model for steps in found])
        ax.set_ylabel("change against the reference (%)")
        ax.grid(axis="y")
        handles = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
        if handles:  # of the dense model alone there is nothing to tell apart
            order = [label for label in (*STEPS, *_PUBLISHED.values()) if label in handles]
            shown = [handles[label] for label in order], order
            ncols = len(order) if len(order) <= MAX_KEYS else MAX_KEYS // 2 + 1
            ax.legend(*shown, ncols=ncols, loc="lower center", bbox_to_anchor=(0.5, 1.0), columnspacing=1.0)

    return Drawing("ladder", "From claim to clock", _alt(found, references(records)), table(records), plot)


def _mark_published(ax: Axes, records: Sequence[AuditRecord], found: Sequence[Ladder]) -> None:
    """Diamonds on the bars of the models that a paper is about, one a data set, filled on the data of this audit."""
    known = {record.model.name: record for record in records if not control_of(record)}
    points = [
        (x + _offset(step), 100 * change, row.dataset == known[steps.model].workload.dataset)
        for x, steps in enumerate(found)
        for row in references(records)
        if steps.model in known and known[steps.model].model.variant == row.method
        for step in STEPS
        if (change := row[step].change) is not None
    ]
    for is_same, fill in ((False, _style.PAPER), (True, _style.INK)):
        places = [(x, y) for x, y, same in points if same == is_same]
        if places:
            look: dict[str, Any] = {"color": _style.INK, "markerfacecolor": fill, "markersize": 4.5}
            ax.plot(*zip(*places, strict=True), "D", label=_PUBLISHED[is_same], **look)


def _offset(step: Step) -> float:
    return 0.16 * (STEPS.index(step) - 2)


def _alt(found: Sequence[Ladder], papers: Sequence[Published]) -> str:
    told = "; ".join(f"{steps.model} {_told(steps)}" for steps in found)
    what = "what it claims, skips, executes, its latency and energy, as change against the reference"
    beside = " Diamonds: what the papers published, in the table below." if papers else ""
    return f"Bars for each model: {what}. {told}.{beside}"


def _told(steps: Ladder, asked: Sequence[Step] = STEPS) -> str:
    rungs = [steps[step] for step in asked]
    known = [f"{r.step} {units.signed_percent(r.change)}" for r in rungs if r.change is not None]
    return ", ".join(known) or "nothing comparable"


def _line(model: str, step: str, rung: Rung, lost: float | None) -> tuple[Cell, ...]:
    points = Cell("") if lost is None else Cell(units.points(lost), lost)
    mark = MARKS[rung.source] if rung.change is not None else ""
    return text(model), text(step), change(rung.change, mark), interval(rung.interval), points, text(rung.reason)
