"""Whether a model's learned routing is better than random routing at the same rate, in plain words."""

from __future__ import annotations

from effaudit import units
from effaudit.record import AuditRecord, Caution, Control

EQUAL_FLOPS = 0.02  # relative: what draws at one rate differ by on a few hundred examples
SAME_COST = 0.1  # relative: a model trained as a control at another rate than this is no control at equal FLOPs
DECIDING = ("random_fixed", "random")  # the first that there is: trained for it, or at inference alone


def deciding_control(record: AuditRecord) -> Control | None:
    """The control that the verdict rests on; None without one at the model's cost that has an interval."""
    known = {c.kind: c for c in record.controls if c.interval is not None and not is_at_another_rate(c)}
    return next((known[kind] for kind in DECIDING if kind in known), None)


def is_at_another_rate(control: Control) -> bool:
    """Whether a model that was trained as a control runs so much more or less that it is none."""
    ratio = control.flops_ratio
    return control.kind == "random_fixed" and ratio is not None and abs(ratio - 1) > SAME_COST


def is_better(control: Control) -> bool:
    """Whether the model is better than its control, beyond what the examples leave open."""
    assert control.interval is not None
    low, high = control.interval
    return high < 0 if control.measurement == "quality.accuracy" else low > 0


def routing_cautions(record: AuditRecord) -> tuple[Caution, ...]:
    """What must be said where learned routing is no better than random, or a control is none."""
    return (*_not_better(record), *(_another_rate(record, c) for c in record.controls if is_at_another_rate(c)))


def _another_rate(record: AuditRecord, control: Control) -> Caution:
    rates = (record.value("routing.alpha_hard"), record.value("routing.head_fraction"))
    own = next((rate for rate in rates if rate is not None), None)
    text = (
        f"the control trained under fixed random routing runs {_cost(control)}, "
        "too far off for a comparison at equal FLOPs: the verdict does not rest on it"
    )
    return Caution(code="control_at_another_rate", text=text, hint=_advice(own, control.rate))


def _advice(own: float | None, rate: float | None) -> str:
    if own is None or rate is None:
        return "train it with the `keep_rate` that the model itself arrives at"
    return f"train it with `keep_rate: {own:.3f}`, what the model itself keeps; it keeps {rate:.3f}"


def _not_better(record: AuditRecord) -> tuple[Caution, ...]:
    control = deciding_control(record)
    if control is None or is_better(control):
        return ()
    assert control.interval is not None
    low, high = control.interval
    how = "worse than" if not low <= 0 <= high else "not distinguishable from"
    other = "training under fixed random routing" if control.kind == "random_fixed" else "random routing"
    what = f"{how} {other} at {_cost(control)}"
    name = control.measurement.removeprefix("quality.")
    span = units.interval(low, high, 2) + " points" if name == "accuracy" else f"[{low:+.4f}, {high:+.4f}]"
    text = (
        f"the learned routing is not better than chance: {name} is {what} "
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
