"""The side-by-side table that console, Markdown and HTML share: one row a model, each cell with its marks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from effaudit import units
from effaudit.comparison import Verdict, compare_measurement
from effaudit.ladder import STEPS, Ladder, Rung, ladder, reference_of
from effaudit.record import AuditRecord
from effaudit.renderers._cells import MARKS, MARKS_LEGEND, number
from effaudit.renderers._words import main_quality, quality_name, quality_shown, quality_value, seeds_shown

__all__ = ["LEGENDS", "MARKS", "Row", "StepCell", "headings", "rows"]

VERDICT_MARKS: dict[Verdict, str] = {"better": "+", "worse": "!", "unsure": "?", "same": "=", "not_comparable": ""}
LEGENDS = (
    MARKS_LEGEND,
    "against the reference: + better, ! worse, = equal, ? no difference beyond doubt",
)


@dataclass(frozen=True)
class StepCell:
    """A figure as text, its provenance and verdict, and where it comes from or why it is missing."""

    text: str
    mark: str
    origin: str
    verdict: Verdict = "not_comparable"
    order: float | None = None  # the number that it shows
    interval: str = ""

    def __str__(self) -> str:
        return f"{self.text} {self.mark}{VERDICT_MARKS[self.verdict]}".strip()


@dataclass(frozen=True)
class Row:
    model: str
    quality: StepCell
    steps: tuple[StepCell, ...]  # in the order of STEPS


def headings(records: Sequence[AuditRecord]) -> tuple[str, ...]:
    """The quality's name where all models share it, then the steps of the ladder."""
    found = {quality_name(q) for record in records if (q := main_quality(record)) is not None}
    return (found.pop() if len(found) == 1 else "quality", *STEPS)


def rows(records: Sequence[AuditRecord]) -> tuple[Row, ...]:
    return tuple(_row(record, records) for record in records)


def verdict_of(rung: Rung) -> Verdict:
    """Whether a step is a saving (better) or a cost (worse) beyond doubt; what is claimed or skipped is not judged."""
    if rung.change is None or rung.step in ("claimed", "skipped"):
        return "not_comparable"
    if rung.interval is None and rung.source != "counted":
        return "unsure"
    if rung.change == 0:
        return "same" if rung.interval is None else "unsure"
    if rung.interval is not None and rung.interval[0] <= 0 <= rung.interval[1]:
        return "unsure"
    return "better" if rung.change < 0 else "worse"


def _row(record: AuditRecord, records: Sequence[AuditRecord]) -> Row:
    steps: Ladder = ladder(record, records)
    cells = tuple(_step_cell(rung, steps.is_reference) for rung in steps.rungs)
    return Row(record.model.name, _quality_cell(record, records), cells)


def _quality_cell(record: AuditRecord, records: Sequence[AuditRecord]) -> StepCell:
    quality, reference = main_quality(record), reference_of(record, records)
    if quality is None:
        return StepCell("", MARKS["unavailable"], "quality was not measured")
    verdict: Verdict = "not_comparable"
    if reference is not None and reference is not record:
        verdict = compare_measurement(reference, record, quality.name).verdict
    value, spread = quality_value(record, quality), seeds_shown(record, quality)
    origin = f"{spread}; {quality.method}" if spread else quality.method
    return StepCell(quality_shown(quality.name, value), MARKS[quality.source], origin, verdict, order=number(value))


def _step_cell(rung: Rung, is_reference: bool) -> StepCell:
    if rung.change is None:
        is_base = is_reference and rung.step not in ("claimed", "skipped")
        return StepCell("ref" if is_base else "", "" if is_base else MARKS["unavailable"], rung.reason)
    return StepCell(
        units.signed_percent(rung.change),
        MARKS[rung.source],
        rung.reason,
        verdict_of(rung),
        number(rung.change),
        units.interval(*rung.interval) if rung.interval else "",
    )
