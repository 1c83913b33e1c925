"""The parts of a comparison that a terminal shows below its table: ladder, budgets, skips, matches."""

from __future__ import annotations

from collections.abc import Sequence

from effaudit import units
from effaudit.ladder import STEPS, Ladder, Rung
from effaudit.record import AuditRecord
from effaudit.renderers._cells import MARKS, NOTHING
from effaudit.renderers._grid import bar_grid
from effaudit.renderers._layout import WIDTH, bar, left, right, shorten, wrap
from effaudit.renderers._shares import Examples, by_layer, by_level, by_token_class
from effaudit.renderers._topics import denominators, difficulty, matches
from effaudit.renderers._topics.ladder import ladders, references, sources

_NAME_WIDTH, _BAR_WIDTH = 13, 20


def ladder_block(records: Sequence[AuditRecord]) -> list[str]:
    """A line a step: the change, a bar of what is saved, the interval, and what was lost since the step before."""
    lines = [line for steps in ladders(records) for line in _steps(steps)]
    head = left("From claim to clock", _NAME_WIDTH + 8) + "    change  # saved, + added   95 % interval"
    return [f"{head}    leaked", *lines] if lines else []


def published_block(records: Sequence[AuditRecord]) -> list[str]:
    """What the papers published of these steps, each against its own dense model."""
    found = references(records)
    used = [step for step in STEPS if any(row[step].change is not None for row in found)]
    lines = [left("Published, against dense there", 31) + "".join(right(step, 10) for step in used)] if found else []
    for row in found:
        changes = [row[step].change for step in used]
        cells = (NOTHING if change is None else units.signed_percent(change) for change in changes)
        lines.append(left(f"  {row.name}", 31) + "".join(right(cell, 10) for cell in cells))
    return [*lines, *(line for source in sources(records) for line in wrap(source, "  - "))]


def following_block(records: Sequence[AuditRecord], examples: Examples) -> list[str]:
    """Whether what is spent follows difficulty: a line for each model and effort."""
    found = difficulty.following(records, examples).rows
    if not found:
        return []
    names = " or ".join(dict.fromkeys(row[2].text for row in found))
    title = f"Follows difficulty? Spearman's rho with {shorten(names, 23)}, 95 % interval"
    lines = [title, right("rho", 48) + right("length held fixed", 21) + right("follows", 11)]
    for model, effort, _, rho, fixed, _, verdict in found:
        name = left(model.text, _NAME_WIDTH) + " " + left(effort.text, 13)
        lines.append(name + right(rho.text, 21) + right(fixed.text, 21) + right(verdict.text, 11))
    return lines


def denominator_block(records: Sequence[AuditRecord], width: int = WIDTH) -> list[str]:
    title = "FLOPs saved, as a share of three wholes (%)"
    return bar_grid(title, denominators.saved(records), lambda share: share.skipped, width)


def difficulty_block(records: Sequence[AuditRecord], examples: Examples, width: int = WIDTH) -> list[str]:
    models = by_level(records, examples)
    return bar_grid("What runs, by difficulty of the examples (%)", models, lambda share: share.runs, width)


def layer_block(records: Sequence[AuditRecord], width: int = WIDTH) -> list[str]:
    return bar_grid("Skipped by layer (%)", by_layer(records), lambda share: share.skipped, width)


def token_class_block(records: Sequence[AuditRecord], width: int = WIDTH) -> list[str]:
    return bar_grid("Skipped by class of tokens (%)", by_token_class(records), lambda share: share.skipped, width)


def match_block(records: Sequence[AuditRecord]) -> list[str]:
    return _titled("Matched", matches.lines(records))


def _titled(title: str, sentences: Sequence[str]) -> list[str]:
    lines = [row for sentence in sentences for row in wrap(sentence, "  - ")]
    return [title, *lines] if lines else []


def _steps(steps: Ladder) -> list[str]:
    lost = {leak.end: leak.lost for leak in steps.leaks}
    known = [rung for rung in steps.rungs if rung.change is not None]
    return [_step(steps.model if i == 0 else "", rung, lost.get(rung.step)) for i, rung in enumerate(known)]


def _step(model: str, rung: Rung, lost: float | None) -> str:
    assert rung.change is not None
    shown = f"{units.signed_percent(rung.change)} {MARKS[rung.source]}"
    saved = bar(-rung.change, _BAR_WIDTH)
    span = units.interval(*rung.interval) if rung.interval else ""
    points = "" if lost is None else units.points(lost).replace(" points", " pt")
    name, step, told = left(model, _NAME_WIDTH), left(rung.step, 8), right(shown, 10)
    return f"{name} {step}{told}  {saved} {_fitting(span, 14)}{_fitting(points, 10)}".rstrip()


def _fitting(text: str, width: int) -> str:
    """The text in its column; one that is too wide for it is left out, the sentence has it too."""
    return right(text if len(text) <= width else "", width)
