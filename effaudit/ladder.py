"""How much of what a model claims to save arrives: claimed, skipped, FLOPs, latency, energy, each against dense."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from effaudit.comparison import Interval, compare_measurement, ratio_of, workload_difference
from effaudit.model_targets import OWN
from effaudit.record import AuditRecord, Measurement, Source

Step = Literal["claimed", "skipped", "FLOPs", "latency", "energy"]
STEPS: tuple[Step, ...] = ("claimed", "skipped", "FLOPs", "latency", "energy")

REFERENCE_VARIANT = "dense"


@dataclass(frozen=True)
class Rung:
    """One step as a change relative to dense: -0.3 is 30 % less. None with the reason where it cannot be had."""

    step: Step
    change: float | None
    source: Source
    reason: str  # by which method, or why not
    interval: Interval | None = None  # of the change, 95 %


@dataclass(frozen=True)
class Leak:
    """What is lost between two steps, as a difference of changes: +0.03 is 3 points of saving that do not arrive."""

    start: Step
    end: Step
    lost: float


@dataclass(frozen=True)
class Ladder:
    """The rungs of one model, in the order of STEPS, and what its routing could save with perfect execution."""

    model: str
    is_reference: bool
    reference: str | None
    rungs: tuple[Rung, ...]
    routable: Rung  # flops.routed against flops.dense

    def __getitem__(self, step: Step) -> Rung:
        return self.rungs[STEPS.index(step)]

    @property
    def leaks(self) -> tuple[Leak, ...]:
        """The loss between each pair of neighbouring steps that are both known."""
        known = [(rung.step, rung.change) for rung in self.rungs if rung.change is not None]
        return tuple(Leak(a, b, after - before) for (a, before), (b, after) in pairwise(known))


def reference_of(record: AuditRecord, records: Sequence[AuditRecord]) -> AuditRecord | None:
    """The first dense record, of the workload and machine of `record` if there is one.

    Without any, the first model of the user's own.
    """
    dense = [r for r in records if r.model.variant == REFERENCE_VARIANT]
    dense = dense or [r for r in records if r.model.variant in OWN][:1]

    def mismatch(other: AuditRecord) -> tuple[bool, bool]:
        is_elsewhere = other.environment.fingerprint != record.environment.fingerprint
        return bool(workload_difference(other, record)), is_elsewhere

    return min(dense, key=mismatch, default=None)


def is_reference(record: AuditRecord, records: Sequence[AuditRecord]) -> bool:
    """Whether others are held against it."""
    return record.model.variant == REFERENCE_VARIANT or reference_of(record, records) is record


def ladder(record: AuditRecord, records: Sequence[AuditRecord]) -> Ladder:
    """The ladder of one record against the dense one among `records`."""
    reference = reference_of(record, records)
    rungs = (
        _claimed(record),
        _skipped(record),
        _relative("FLOPs", "flops.executed", record, reference),
        _relative("latency", "latency.p50", record, reference),
        _relative("energy", "energy.gross", record, reference),
    )
    return Ladder(
        model=record.model.name,
        is_reference=reference is record,
        reference=reference.model.name if reference else None,
        rungs=rungs,
        routable=_routable(record),
    )


def n_layers(record: AuditRecord) -> int | None:
    """Layers of the backbone, from the per-layer table, or else the profile's where that has made the model."""
    size = None if record.model.variant in OWN else record.profile.get("size")
    given = size.get("n_layers") if isinstance(size, dict) else None
    return len(record.layers) or (given if isinstance(given, int) and given > 0 else None)


def _claimed(record: AuditRecord) -> Rung:
    """What the gates say, soft where there is a soft figure, as a share of the blocks or heads of the whole model."""
    for name in ("routing.alpha_soft", "routing.alpha_hard"):
        if (active := _available(record, name)) is not None:
            n = n_layers(record)
            if n is None:
                return Rung("claimed", None, "unavailable", "number of layers unknown")
            kept = [getattr(row, name.removeprefix("routing.")) for row in record.layers]
            if record.model.variant in OWN and kept:  # a layer that logs nothing, None here, always runs
                saving = sum(1 - share for share in kept if share is not None) / n
                return _saving("claimed", saving, active, f"mean over layers of 1 - {name}")
            # The stem, the first block, always runs (TSA paper §2.5).
            return _saving("claimed", (n - 1) / n * (1 - _number(active)), active, f"(L-1)/L (1 - {name})")
    for name in ("routing.budget", "routing.head_fraction"):
        if (active := _available(record, name)) is not None:
            return _saving("claimed", 1 - _number(active), active, f"1 - {name}")
    return Rung("claimed", None, "unavailable", _why_no_routing(record))


def _skipped(record: AuditRecord) -> Rung:
    """What is really left out."""
    if (saved := _available(record, "routing.tlops_saved")) is not None:
        return _saving("skipped", _number(saved), saved, saved.name)
    if (active := _available(record, "routing.head_fraction")) is not None:
        return _saving("skipped", 1 - _number(active), active, "1 - routing.head_fraction")
    return Rung("skipped", None, "unavailable", _why_no_routing(record))


def _relative(step: Step, name: str, record: AuditRecord, reference: AuditRecord | None) -> Rung:
    if reference is record:
        return Rung(step, None, "unavailable", "the reference itself")
    if reference is None:
        return Rung(step, None, "unavailable", "no dense model among the records")
    old, new = reference.get(name), record.get(name)
    if old is None or new is None:
        return Rung(step, None, "unavailable", f"{name} was not measured{'' if new is None else ' of dense'}")
    if old.value is None or new.value is None:
        reason = new.method if new.value is None else f"unavailable for {reference.model.name}: {old.method}"
        return Rung(step, None, "unavailable", reason)
    delta = compare_measurement(reference, record, name)
    if delta.ratio is None:
        return Rung(step, None, "unavailable", delta.reason or f"{reference.model.name} has zero")
    span = (delta.interval[0] - 1, delta.interval[1] - 1) if delta.interval else None
    return Rung(step, delta.ratio - 1, _weaker(old.source, new.source), new.method, span)


def _routable(record: AuditRecord) -> Rung:
    routed, dense = _available(record, "flops.routed"), _available(record, "flops.dense")
    ratio = None if routed is None or dense is None else ratio_of(_number(dense), _number(routed))
    if routed is None or ratio is None:
        return Rung("FLOPs", None, "unavailable", "flops.routed or flops.dense unavailable")
    return _saving("FLOPs", 1 - ratio, routed, "flops.routed / flops.dense")


def _saving(step: Step, saving: float, origin: Measurement, formula: str) -> Rung:
    change = -saving if saving else 0.0
    return Rung(step, change, origin.source, f"{formula}; {origin.method}" if origin.method else formula)


def _available(record: AuditRecord, name: str) -> Measurement | None:
    measurement = record.get(name)
    return measurement if measurement is not None and measurement.value is not None else None


def _number(measurement: Measurement) -> int | float:
    assert measurement.value is not None
    return measurement.value


def _why_no_routing(record: AuditRecord) -> str:
    reasons = [m.method for m in record.measurements if m.name.startswith("routing.") and m.value is None]
    return reasons[0] if reasons else "routing was not measured"


def _weaker(first: Source, second: Source) -> Source:
    """The provenance of a ratio is that of its weaker part."""
    order: tuple[Source, ...] = ("counted", "measured", "modelled", "unavailable")
    return max(first, second, key=order.index)
