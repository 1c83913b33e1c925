"""What the audit of one model comes to, in a few words with the colour of good or bad news."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from effaudit.comparison import Verdict, compare_measurement
from effaudit.ladder import ladder, reference_of
from effaudit.record import AuditRecord
from effaudit.renderers._sentence import Outcome, outcome
from effaudit.renderers._words import control_of, main_quality, quality_name

Kind = Literal["good", "bad", "doubt", "plain"]

_TIME: Mapping[Outcome, Kind] = {
    "reference": "plain",
    "faster": "good",
    "no faster": "doubt",
    "slower": "bad",
    "not comparable": "plain",
}
_QUALITY: Mapping[Verdict, tuple[str, Kind]] = {
    "better": ("better", "good"),
    "worse": ("worse", "bad"),
    "same": ("equal", "plain"),
    "unsure": ("not distinguishable", "plain"),
    "not_comparable": ("not comparable", "plain"),
}


@dataclass(frozen=True)
class Tag:
    text: str
    kind: Kind


def tags(record: AuditRecord, records: Sequence[AuditRecord]) -> tuple[Tag, ...]:
    """What it is there for if it is a control, what the clock says and what became of the quality."""
    role = control_of(record)
    return (*((Tag(role, "plain"),) if role else ()), *_outcomes(record, records))


def _outcomes(record: AuditRecord, records: Sequence[AuditRecord]) -> tuple[Tag, ...]:
    clock = outcome(ladder(record, records))
    time = Tag("time not comparable" if clock == "not comparable" else clock, _TIME[clock])
    quality, reference = main_quality(record), reference_of(record, records)
    if quality is None or reference is None or reference is record:
        return (time,)
    delta = compare_measurement(reference, record, quality.name)
    word, kind = _QUALITY[delta.verdict]
    if delta.verdict == "unsure" and delta.interval is None and delta.difference is None:
        word = "without an interval"
    return time, Tag(f"{quality_name(quality)} {word}", kind)
