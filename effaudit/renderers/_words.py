"""What is to be said beside the figures: which quality stands for a model, cautions, reasons for what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from effaudit import units
from effaudit.comparison import MAIN_QUALITY, over_seeds
from effaudit.record import AuditRecord, Measurement

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


def control_of(record: AuditRecord) -> str:
    """What a model that was trained under fixed random routing is there for; empty for all others."""
    if record.model.options.get("routing") != "random_fixed":
        return ""
    controls = record.profile.get("controls")
    trained = controls.get("trained") if isinstance(controls, dict) else None
    pairs = trained.items() if isinstance(trained, dict) else ()
    whose = ", ".join(str(model) for model, control in pairs if control == record.model.name)
    return f"control{' of ' if whose else ''}{whose}"


def main_quality(record: AuditRecord) -> Measurement | None:
    """The quality figure that stands for the model, None where no quality was measured."""
    found = (record.get(name) for name in MAIN_QUALITY.get(record.workload.task, MAIN_QUALITY["classification"]))
    return next((m for m in found if m is not None and m.value is not None), None)


def cautions(records: Sequence[AuditRecord]) -> tuple[Note, ...]:
    """Every caution once, with the models it is about; those of one kind follow each other, their hint on the last."""
    kinds: dict[tuple[str, str], dict[str, list[str]]] = {}
    for record in records:
        for caution in (*record.cautions, *(c for m in record.measurements for c in m.cautions)):
            texts = kinds.setdefault((caution.code, caution.hint), {})
            # The models are named beside the text, whatever a text from elsewhere says.
            _join(texts, caution.text.removeprefix(f"{record.model.name}: "), record.model.name)
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


def obstacles(records: Sequence[AuditRecord]) -> tuple[str, ...]:
    """What keeps records of several workloads or machines from being compared, a sentence each."""
    said = []
    works = {(r.workload.sha256, r.workload.split, r.workload.n_examples, r.workload.batch_size) for r in records}
    if len(works) > 1:
        said.append(
            f"these records are of {len(works)} workloads: only parameters and weights compare across them, "
            "and each model is held against the dense one of its own workload."
        )
    machines = {r.environment.fingerprint for r in records}
    if len(machines) > 1:
        said.append(
            f"these records are of {len(machines)} machines or settings: time, memory and energy are not comparable "
            "across them."
        )
    return tuple(said)


def _whom(names: Sequence[str], records: Sequence[AuditRecord]) -> str:
    known = {record.model.name for record in records}
    if len(known) == 1:
        return ""
    return "all models" if len(names) == len(known) else ", ".join(names)


def _join(groups: dict[KeyT, list[str]], key: KeyT, name: str) -> None:
    members = groups.setdefault(key, [])
    if name not in members:
        members.append(name)


def quality_name(quality: Measurement) -> str:
    return quality.name.removeprefix("quality.")


def quality_value(record: AuditRecord, quality: Measurement) -> float:
    """The figure, or its mean where the profile names several seeds."""
    seeds = over_seeds(record, quality.name)
    assert quality.value is not None
    return float(quality.value) if seeds is None else seeds.mean


def quality_shown(name: str, value: float) -> str:
    """`94.2 %` for an accuracy, else the figure with four digits."""
    return units.percent(value) if name == "quality.accuracy" else units.number(value, 4)


def seeds_shown(record: AuditRecord, quality: Measurement) -> str:
    """How far a figure spreads over seeds, empty where there is one seed alone."""
    seeds = over_seeds(record, quality.name)
    if seeds is None:
        return ""
    low, high = (quality_shown(quality.name, end) for end in (seeds.low, seeds.high))
    return f"mean of {seeds.n} seeds, {low} to {high}"
