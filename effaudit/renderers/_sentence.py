"""What the audit of one model comes to, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from effaudit import units
from effaudit.comparison import Delta, Interval, compare_measurement
from effaudit.ladder import Ladder, Rung, ladder, reference_of
from effaudit.record import AuditRecord, Measurement
from effaudit.renderers._words import (
    ABSOLUTES,
    control_of,
    main_quality,
    quality_name,
    quality_shown,
    quality_value,
    seeds_shown,
)

Outcome = Literal["reference", "faster", "no faster", "slower", "not comparable"]


def outcome(steps: Ladder) -> Outcome:
    """What the clock says; `no faster` where no difference is shown."""
    latency = steps["latency"]
    if steps.is_reference:
        return "reference"
    if latency.change is None:
        return "not comparable"
    if latency.interval is None or latency.interval[0] <= 0 <= latency.interval[1]:
        return "no faster"
    return "slower" if latency.change > 0 else "faster"


def sentence(record: AuditRecord, records: Sequence[AuditRecord]) -> str:
    """What the model saves and what arrives of it."""
    steps = ladder(record, records)
    if steps.is_reference:
        return _reference_sentence(record)
    parts = [_claimed(record, steps["claimed"]), _skipped(steps["skipped"]), _flops(steps["FLOPs"]), _time(steps)]
    facts = ", ".join(part for part in parts if part)
    said = "; ".join(part for part in (_conclusion(steps), _quality(record, records)) if part)
    name = f"{record.model.name}{_role(record)}"
    return f"{name}: {facts}: {said}." if facts else f"{name}: {said}."


def _role(record: AuditRecord) -> str:
    role = control_of(record)
    return f" ({role}, trained under fixed random routing)" if role else ""


def _reference_sentence(record: AuditRecord) -> str:
    quality = main_quality(record)
    said = [] if quality is None else [f"{quality_name(quality)} {_quality_value(record, quality)}"]
    for name, label in ABSOLUTES:
        m = record.get(name)
        if m is not None and m.value is not None:
            said.append(f"{label} {units.quantity(m.value, m.unit)}")
    return f"{record.model.name} is the reference: {', '.join(said) or 'nothing was measured'}."


def _claimed(record: AuditRecord, rung: Rung) -> str:
    if rung.change is None:
        return ""
    is_soft = any(record.value(name) is not None for name in ("routing.alpha_soft", "routing.budget"))
    return f"claims {_saved(rung.change)} ({'soft' if is_soft else 'hard'})"


def _skipped(rung: Rung) -> str:
    return "" if rung.change is None else f"skips {_saved(rung.change)} (hard)"


def _saved(change: float) -> str:
    return units.signed_percent(-change).removeprefix("+")


def _flops(rung: Rung) -> str:
    return "" if rung.change is None else f"runs {_more_or_less(rung.change, 'more FLOPs', 'fewer FLOPs', 'the FLOPs')}"


def _time(steps: Ladder) -> str:
    rung = steps["latency"]
    if rung.change is None:
        return ""
    if rung.interval is not None and rung.interval[0] <= 0 <= rung.interval[1]:
        span = units.interval(*rung.interval)
        return f"takes {units.signed_percent(rung.change)} time {span} against {steps.reference}"
    how = _more_or_less(rung.change, "more time", "less time", "the time")
    if rung.interval is None:
        return f"takes {how} than {steps.reference} (too few samples for an interval)"
    low, high = sorted(abs(end) for end in rung.interval)
    return f"takes {how} {units.interval(low, high)} than {steps.reference}"


def _more_or_less(change: float, more: str, less: str, times: str) -> str:
    """`4.0 % more time`, and `x41.7 the time` where a percentage says little."""
    amount = units.signed_percent(abs(change)).removeprefix("+")
    if change > 0 and amount.startswith("x"):
        return f"{amount} {times}"
    return f"{amount} {more if change > 0 else less}"


def _conclusion(steps: Ladder) -> str:
    flops, latency = steps["FLOPs"].change, steps["latency"]
    if steps.reference is None:
        return "no dense model among the records to hold it against"
    is_saving = flops is not None and flops < 0
    clock = outcome(steps)
    if clock == "not comparable":
        return f"time is not comparable ({latency.reason})"
    if clock == "no faster":
        return "no difference on the clock is shown" if is_saving else "no saving is shown"
    if clock == "slower":
        return "not faster, the saving does not arrive on the clock" if is_saving else "slower, nothing is saved"
    if flops is None or flops >= 0:
        return "faster, but not by fewer FLOPs"
    assert latency.change is not None
    share = latency.change / flops
    if share > 1:
        return "all of the FLOPs saving and more arrives on the clock"
    return f"{units.percent(share, 0)} of the FLOPs saving arrives on the clock"


def _quality(record: AuditRecord, records: Sequence[AuditRecord]) -> str:
    quality, reference = main_quality(record), reference_of(record, records)
    if quality is None:
        is_asked = any(m.name.startswith("quality.") for m in record.measurements)
        return "its quality is not to be had" if is_asked else "quality was not measured"
    name = quality_name(quality)
    if reference is None:
        return f"{name} {_quality_value(record, quality)}"
    delta = compare_measurement(reference, record, quality.name)
    if delta.ratio is None or delta.before is None or delta.after is None:
        return f"{name} {_quality_value(record, quality)}, not comparable ({delta.reason or 'no ratio to zero'})"
    if delta.before == delta.after:
        return f"{name} unchanged"
    change = delta.after - delta.before
    size = units.points(abs(change), 2) if name == "accuracy" else units.signed_percent(abs(delta.ratio - 1), 2)
    word = "rises" if change > 0 else "drops"
    told = f"{name} {word} {size.removeprefix('+')}"
    span = _quality_span(delta, is_share=name == "accuracy")
    if span is None:
        return told
    low, high = span if change > 0 else (-span[1], -span[0])
    return f"{told} {units.interval(low, high, 2)}{_doubt(delta, record)}"


def _doubt(delta: Delta, record: AuditRecord) -> str:
    """On what the change rests, and whether it is one at all."""
    seeds = f", mean of {delta.seeds.n} seeds" if delta.seeds is not None else ""
    if delta.verdict != "unsure":
        return seeds
    return f"{seeds}, not distinguishable on {record.workload.n_examples} examples"


def _quality_value(record: AuditRecord, quality: Measurement) -> str:
    spread = seeds_shown(record, quality)
    return quality_shown(quality.name, quality_value(record, quality)) + (f" ({spread})" if spread else "")


def _quality_span(delta: Delta, is_share: bool) -> Interval | None:
    """The 95 % interval of the difference for a share, of the relative change for any other quality."""
    if is_share and delta.difference is not None:
        return delta.difference
    if delta.interval is None or delta.before is None:
        return None
    low, high = (end - 1 for end in delta.interval)
    return (low * delta.before, high * delta.before) if is_share else (low, high)
