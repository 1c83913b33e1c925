"""The side-by-side table that console, Markdown and HTML share: one row a model, each cell with its mark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from effaudit import units
from effaudit.ladder import STEPS, Ladder, Rung, ladder
from effaudit.record import AuditRecord, Source
from effaudit.renderers._words import main_quality, quality_name, quality_value

MARKS: dict[Source, str] = {"counted": "c", "measured": "m", "modelled": "~", "unavailable": "–"}
LEGEND = "c counted, m measured, ~ modelled, – unavailable, ? interval covers no change"


@dataclass(frozen=True)
class Cell:
    """A figure as text, its provenance mark, and where it comes from or why it is missing."""

    text: str
    mark: str
    origin: str

    def __str__(self) -> str:
        return f"{self.text} {self.mark}".strip()


@dataclass(frozen=True)
class Row:
    model: str
    quality: Cell
    steps: tuple[Cell, ...]  # in the order of STEPS


def headings(records: Sequence[AuditRecord]) -> tuple[str, ...]:
    """The quality's name where all models share it, then the steps of the ladder."""
    found = {quality_name(q) for record in records if (q := main_quality(record)) is not None}
    return (found.pop() if len(found) == 1 else "quality", *STEPS)


def rows(records: Sequence[AuditRecord]) -> tuple[Row, ...]:
    return tuple(_row(record, ladder(record, records)) for record in records)


def _row(record: AuditRecord, steps: Ladder) -> Row:
    quality = main_quality(record)
    shown = Cell("", MARKS["unavailable"], "quality was not measured")
    if quality is not None:
        shown = Cell(quality_value(quality), MARKS[quality.source], quality.method)
    return Row(record.model.name, shown, tuple(_step_cell(rung, steps.is_reference) for rung in steps.rungs))


def _step_cell(rung: Rung, is_reference: bool) -> Cell:
    if rung.change is None:
        is_base = is_reference and rung.step not in ("claimed", "skipped")
        return Cell("ref" if is_base else "", "" if is_base else MARKS["unavailable"], rung.reason)
    doubt = "?" if rung.interval is not None and rung.interval[0] <= 0 <= rung.interval[1] else ""
    return Cell(units.signed_percent(rung.change), MARKS[rung.source] + doubt, rung.reason)
