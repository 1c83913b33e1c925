"""What a control says: its figures as text, and whether the model's own routing is better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from effaudit import units
from effaudit.record import AuditRecord, Control
from effaudit.renderers._cells import NOTHING
from effaudit.routing_verdict import deciding_control

Standing = Literal["better", "not better", "worse", "not shown"]  # of the model's own routing

SHORT: Mapping[str, str] = {
    "random": "random",
    "constant": "constant",
    "untrained": "untrained",
    "soft": "soft gates",
    "random_fixed": "fixed random",
}
LONG: Mapping[str, str] = {
    "random": "random routing at the same rate",
    "constant": "constant routing",
    "untrained": "untrained gates",
    "soft": "soft gates",
    "random_fixed": "training under fixed random routing",
}


def lines(records: Sequence[AuditRecord]) -> tuple[str, ...]:
    """Sentences for each model that was held against controls: about the one that decides, and about its soft gates."""
    said = []
    for record in records:
        deciding = deciding_control(record)
        said += [_sentence(record, deciding)] if deciding is not None else []
        said += [_leak(record, c) for c in record.controls if c.kind == "soft" and c.interval is not None]
    return tuple(said)


def standing(record: AuditRecord, control: Control) -> Standing:
    """Whether what the model does is better than the control, beyond what the examples leave open."""
    if control.interval is None:
        return "not shown"
    low, high = control.interval
    if low <= 0 <= high:
        return "not better"
    measurement = record.get(control.measurement)
    is_higher_better = measurement is not None and measurement.better == "higher"
    return "better" if (high < 0) == is_higher_better else "worse"


def quality_of(control: Control) -> str:
    return control.measurement.removeprefix("quality.")


def value(control: Control) -> str:
    if control.value is None:
        return NOTHING
    return units.percent(control.value) if _is_share(control) else units.number(control.value, 4)


def difference(control: Control) -> str:
    """The control less the model, in points for a share."""
    if control.difference is None:
        return NOTHING
    return f"{100 * control.difference:+.2f}" if _is_share(control) else f"{control.difference:+.4f}"


def span(control: Control) -> str:
    if control.interval is None:
        return ""
    low, high = control.interval
    return units.interval(low, high, 2) if _is_share(control) else f"[{low:.4f}, {high:.4f}]"


_LEAK: Mapping[Standing, str] = {
    "worse": "that much is lost by the hard rule",
    "not better": "nothing is lost by the hard rule beyond doubt",
    "better": "the hard rule answers better",
}


def _leak(record: AuditRecord, control: Control) -> str:
    note = f" ({control.note})" if control.note else ""
    return f"{record.model.name} with soft gates: {_figures(control)}: {_LEAK[standing(record, control)]}{note}."


def _figures(control: Control) -> str:
    unit = " points" if _is_share(control) else ""
    return f"{quality_of(control)} {value(control)}, {difference(control)}{unit} {span(control)}"


def _sentence(record: AuditRecord, control: Control) -> str:
    verdict = f"the learned routing is {standing(record, control)}"
    if standing(record, control) == "not better":
        on = "" if control.n_examples is None else f" on {control.n_examples} examples"
        verdict += f", the two are not distinguishable{on}"
    note = f" ({control.note})" if control.note else ""
    return f"{record.model.name} with {LONG[control.kind]}: {_figures(control)}: {verdict}{note}."


def _is_share(control: Control) -> bool:
    return control.measurement == "quality.accuracy"
