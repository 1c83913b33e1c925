"""Whether a model's learned routing is better than random routing at the same rate, in plain words."""

from __future__ import annotations

from effaudit import units
from effaudit.record import AuditRecord, Caution, Control

EQUAL_FLOPS = 0.02  # relative: what draws at one rate differ by on a few hundred examples
DECIDING = ("random_fixed", "random")  # the first that there is: trained for it, or at inference alone


def deciding_control(record: AuditRecord) -> Control | None:
    """The control that the verdict rests on; None without one that has an interval."""
    known = {control.kind: control for control in record.controls if control.interval is not None}
    return next((known[kind] for kind in DECIDING if kind in known), None)


def is_better(control: Control) -> bool:
    """Whether the model is better than its control, beyond what the examples leave open."""
    assert control.interval is not None
    low, high = control.interval
    return high < 0 if control.measurement == "quality.accuracy" else low > 0


def routing_cautions(record: AuditRecord) -> tuple[Caution, ...]:
    """What must be said where learned routing is no better than random."""
    control = deciding_control(record)
    if control is None or is_better(control):
        return ()
    assert control.interval is not None
    low, high = control.interval
    how = "worse than" if not low <= 0 <= high else "not distinguishable from"
    what = f"{how} random routing at {_cost(control)}"
    name = control.measurement.removeprefix("quality.")
    span = units.interval(low, high, 2) + " points" if name == "accuracy" else f"[{low:+.4f}, {high:+.4f}]"
    trained = " that it was trained under" if control.kind == "random_fixed" else ""
    text = (
        f"{record.model.name}: its learned routing is not better than chance: {name} is {what}{trained} "
        f"(random less learned {span}, {control.n_examples} examples)"
    )
    hint = "a model trained with `routing: random_fixed` tells more, see `controls: trained:`"
    return (Caution(code="routing_not_better", text=text, hint="" if control.kind == "random_fixed" else hint),)


def _cost(control: Control) -> str:
    ratio = control.flops_ratio
    if ratio is None:
        return "the same rate"
    if abs(ratio - 1) <= EQUAL_FLOPS:
        return "equal FLOPs"
    return f"{units.number(ratio)} times the FLOPs"
