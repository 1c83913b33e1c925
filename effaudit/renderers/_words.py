"""What records mean in plain words: one sentence per model, cautions, reasons for what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from effaudit import units
from effaudit.comparison import compare_measurement
from effaudit.ladder import Ladder, Rung, ladder, reference_of
from effaudit.record import AuditRecord, Measurement

# By task, the quality figure that stands for a model: the first of these that its record has.
QUALITIES = {
    "classification": ("quality.accuracy", "quality.loss"),
    "causal_lm": ("quality.bpc", "quality.accuracy", "quality.loss"),
}

ABSOLUTES = (
    ("flops.executed", "FLOPs per pass"),
    ("latency.p50", "latency per batch"),
    ("memory.peak", "peak memory"),
    ("energy.gross", "energy per pass"),
    ("params", "parameters"),
)

KeyT = TypeVar("KeyT")


@dataclass(frozen=True)
class Note:
    """A text, the next step if there is one, and which models it is about (empty where there is only one)."""

    text: str
    hint: str
    whom: str


def main_quality(record: AuditRecord) -> Measurement | None:
    """The quality figure that stands for the model, None where no quality was measured."""
    found = (record.get(name) for name in QUALITIES.get(record.workload.task, QUALITIES["classification"]))
    return next((m for m in found if m is not None and m.value is not None), None)


def sentence(record: AuditRecord, records: Sequence[AuditRecord]) -> str:
    """One sentence about what the model saves and what arrives of it."""
    steps = ladder(record, records)
    if steps.is_reference:
        return _reference_sentence(record)
    parts = [_part("claims", steps["claimed"]), _part("skips", steps["skipped"]), _flops_part(steps["FLOPs"])]
    facts = ", ".join(part for part in (*parts, _time_part(steps)) if part)
    said = "; ".join(part for part in (_conclusion(steps), _quality_part(record, records)) if part)
    return f"{record.model.name}: {facts}: {said}." if facts else f"{record.model.name}: {said}."


def cautions(records: Sequence[AuditRecord]) -> tuple[Note, ...]:
    """Every caution once, with the models it is about; those of one kind follow each other, their hint on the last."""
    kinds: dict[tuple[str, str], dict[str, list[str]]] = {}
    for record in records:
        for caution in (*record.cautions, *(c for m in record.measurements for c in m.cautions)):
            texts = kinds.setdefault((caution.code, caution.hint), {})
            _join(texts, caution.text, record.model.name)
    notes = []
    for (_, hint), texts in kinds.items():
        *others, last = [(text, _whom(names, records)) for text, names in texts.items()]
        notes += [*(Note(text, "", whom) for text, whom in others), Note(last[0], hint, last[1])]
    return tuple(notes)


def missing(records: Sequence[AuditRecord]) -> tuple[Note, ...]:
    """Every reason for an unavailable figure once, as `energy.net, emissions: <reason>`."""
    models: dict[tuple[str, str], list[str]] = {}
    for record in records:
        for m in record.measurements:
            if m.value is None:
                _join(models, (m.name, m.method), record.model.name)
    figures: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (name, reason), whom in models.items():
        _join(figures, (reason, tuple(whom)), name)
    return tuple(
        Note(f"{', '.join(names)}: {reason}", "", _whom(whom, records)) for (reason, whom), names in figures.items()
    )


def _whom(names: Sequence[str], records: Sequence[AuditRecord]) -> str:
    known = {record.model.name for record in records}
    if len(known) == 1:
        return ""
    return "all models" if len(names) == len(known) else ", ".join(names)


def _join(groups: dict[KeyT, list[str]], key: KeyT, name: str) -> None:
    members = groups.setdefault(key, [])
    if name not in members:
        members.append(name)


def _reference_sentence(record: AuditRecord) -> str:
    quality = main_quality(record)
    said = [] if quality is None else [f"{quality_name(quality)} {quality_value(quality)}"]
    for name, label in ABSOLUTES:
        m = record.get(name)
        if m is not None and m.value is not None:
            said.append(f"{label} {units.quantity(m.value, m.unit)}")
    return f"{record.model.name} is the reference: {', '.join(said) or 'nothing was measured'}."


def quality_name(quality: Measurement) -> str:
    return quality.name.removeprefix("quality.")


def quality_value(quality: Measurement) -> str:
    """`94.2 %` for an accuracy, else the figure with four digits."""
    assert quality.value is not None
    if quality.name == "quality.accuracy":
        return units.percent(quality.value)
    return units.number(float(quality.value), 4)


def _part(verb: str, rung: Rung) -> str:
    return "" if rung.change is None else f"{verb} {units.signed_percent(rung.change)}"


def _flops_part(rung: Rung) -> str:
    return "" if rung.change is None else f"executes {units.signed_percent(rung.change)} FLOPs"


def _time_part(steps: Ladder) -> str:
    rung = steps["latency"]
    if rung.change is None:
        return ""
    if rung.interval is not None and rung.interval[0] <= 0 <= rung.interval[1]:
        span = units.interval(*rung.interval)
        return f"takes {units.signed_percent(rung.change)} time {span} against {steps.reference}"
    amount = units.signed_percent(abs(rung.change)).removeprefix("+")
    how = f"{amount} {'more' if rung.change > 0 else 'less'} time"
    if amount.startswith("x"):
        how = f"{amount} the time"
    if rung.interval is None:
        return f"takes {how} than {steps.reference} (too few samples for an interval)"
    low, high = sorted(abs(end) for end in rung.interval)
    return f"takes {how} {units.interval(low, high)} than {steps.reference}"


def _conclusion(steps: Ladder) -> str:
    flops, latency = steps["FLOPs"].change, steps["latency"]
    if steps.reference is None:
        return "no dense model among the records to hold it against"
    if latency.change is None:
        return f"time is not comparable ({latency.reason})"
    is_saving = flops is not None and flops < 0
    if latency.interval is None or latency.interval[0] <= 0 <= latency.interval[1]:
        return "no difference on the clock is shown" if is_saving else "no saving is shown"
    if latency.change > 0:
        return "not faster, the saving does not arrive on the clock" if is_saving else "slower, nothing is saved"
    if flops is None or flops >= 0:
        return "faster, but not by fewer FLOPs"
    share = latency.change / flops
    if share > 1:
        return "all of the FLOPs saving and more arrives on the clock"
    return f"{units.percent(share, 0)} of the FLOPs saving arrives on the clock"


def _quality_part(record: AuditRecord, records: Sequence[AuditRecord]) -> str:
    quality, reference = main_quality(record), reference_of(record, records)
    if quality is None:
        is_asked = any(m.name.startswith("quality.") for m in record.measurements)
        return "its quality is not to be had" if is_asked else "quality was not measured"
    name = quality_name(quality)
    if reference is None:
        return f"{name} {quality_value(quality)}"
    delta = compare_measurement(reference, record, quality.name)
    if delta.ratio is None or delta.before is None or delta.after is None:
        return f"{name} {quality_value(quality)}, not comparable ({delta.reason or 'no ratio to zero'})"
    if delta.before == delta.after:
        return f"{name} unchanged"
    change = delta.after - delta.before
    size = units.points(abs(change), 2) if name == "accuracy" else units.signed_percent(abs(delta.ratio - 1), 2)
    word = "rises" if change > 0 else "drops"
    is_within = delta.interval is not None and delta.interval[0] <= 1 <= delta.interval[1]
    doubt = f", not distinguishable on {record.workload.n_examples} examples" if is_within else ""
    return f"{name} {word} {size.removeprefix('+')}{doubt}"
