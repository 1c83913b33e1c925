"""Whether what a model's gates learned is better than chance: the same weights under other routings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from effaudit import comparison, stats, units
from effaudit.assembly import Assembled
from effaudit.example_table import Floats
from effaudit.other_routing import Decide, Decisions
from effaudit.profile_spec import ControlKind, ControlsSpec
from effaudit.record import AuditRecord, Control
from effaudit.scoring import score
from effaudit.workload import Batch, Routing, Workload

MISMATCH = "train/test mismatch: the weights were trained under their own routing"
ALL_TRAINED = "every exit was trained on all examples, only copied states are new to it"

WorkOf = Callable[[Assembled], Workload]


@dataclass(frozen=True)
class Observed:
    """What one pass found: a value an example, FLOPs by formula (None where there is none), decisions."""

    n_asked: Floats
    n_right: Floats
    loss: Floats  # summed over an example's answers, nats
    flops: int | None
    decisions: Decisions


def is_adaptive(model: Assembled) -> bool:
    """Whether it has gates that were trained and takes other decisions in their place."""
    return hasattr(model.variant, "GATES") and model.config.options.get("routing") != "random_fixed"


def run_controls(model: Assembled, work_of: WorkOf, spec: ControlsSpec, seed: int) -> tuple[Control, ...]:
    """The model's own routing against the kinds that `spec` names; nothing for a model without gates.

    `work_of` gives the workload of a model on the examples of the controls.
    """
    if not is_adaptive(model):
        return ()
    work = work_of(model)
    own = observe(work)
    found = []
    for kind in spec.kinds:
        others = list(_others(kind, model, work_of, own, spec, seed))
        if others:
            found.append(_control(kind, work, own, others))
    return tuple(found)


def _others(
    kind: ControlKind, model: Assembled, work_of: WorkOf, own: Observed, spec: ControlsSpec, seed: int
) -> Iterator[Observed]:
    if kind == "random":
        draws = range(seed, seed + spec.draws)
        yield from (observe(work_of(model), own.decisions.at_random(draw)) for draw in draws)
    elif kind == "constant":
        yield observe(work_of(model), own.decisions.most_common())
    elif kind == "untrained":
        yield observe(work_of(model.with_untrained_gates(seed)))
    elif soft := getattr(model.variant, "SOFT", None):
        yield observe(work_of(model.with_options(soft)))


def observe(work: Workload, decide: Decide | None = None) -> Observed:
    """One pass over the workload under its own routing, or under what `decide` says of each batch."""
    columns: list[Floats] = []
    flops: int | None = 0
    decisions = Decisions(work.n_layers)
    for batch in work.batches():
        output = work.run(batch, None if decide is None else decide(batch))
        scores = score(output.logits, batch)
        columns.append(np.stack([part.cpu().numpy() for part in (scores.n_asked, scores.n_right, scores.loss)]))
        flops = _added(flops, work, batch, output.routing)
        decisions.add(batch, output.routing)
    n_asked, n_right, loss = np.concatenate(columns, axis=1)
    return Observed(n_asked, n_right, loss, flops, decisions)


def _added(flops: int | None, work: Workload, batch: Batch, routing: Routing) -> int | None:
    try:
        return None if flops is None else flops + int(work.flops(batch, routing, work.execution).sum())
    except NotImplementedError:
        return None


def _control(kind: ControlKind, work: Workload, own: Observed, others: Sequence[Observed]) -> Control:
    name, unit = _measure(work)
    before = _values(own, name) / unit
    after = np.mean([_values(other, name) / unit for other in others], axis=0)
    change = stats.paired_change(before, after, own.n_asked)
    flops = [other.flops for other in others if other.flops is not None]
    rates = [rate for other in others if (rate := other.decisions.rate) is not None]
    asked = own.n_asked > 0
    return Control(
        kind=kind,
        measurement=name,
        n_draws=len(others),
        value=float(np.average(after[asked], weights=own.n_asked[asked])) if asked.any() else None,
        difference=change.difference.value if change else None,
        interval=(change.difference.low, change.difference.high) if change else None,
        flops_ratio=float(np.mean(flops)) / own.flops if flops and own.flops else None,
        note=_note(kind, own),
        rate=float(np.mean(rates)) if rates else None,
        n_examples=len(own.n_asked),
    )


def _measure(work: Workload) -> tuple[str, float]:
    """The figure of quality that is compared, and nats or answers in its unit."""
    if work.task == "classification":
        return "quality.accuracy", 1.0
    return ("quality.bpc", math.log(2)) if work.is_characters else ("quality.loss", 1.0)


def _values(observed: Observed, name: str) -> Floats:
    sums = observed.n_right if name == "quality.accuracy" else observed.loss
    return np.divide(sums, observed.n_asked, out=np.full(len(sums), np.nan), where=observed.n_asked > 0)


def _note(kind: ControlKind, own: Observed) -> str:
    """What must be known to read a control: how far training and test differ, what the gates say and skip."""
    if kind != "soft":
        return ALL_TRAINED if own.decisions.exits.any() and kind != "untrained" else MISMATCH
    soft, hard = own.decisions.soft_rate, own.decisions.rate
    if soft is None or hard is None:
        return "soft gates skip nothing"
    rates = f"the gates let {units.percent(soft)} pass, the hard rule runs {units.percent(hard)}"
    return f"{rates}; soft gates skip nothing: what they answer better is the leak"


def against_trained(own: AuditRecord, other: AuditRecord) -> Control:
    """A model against the one that was trained under fixed random routing, by their records.

    Over several seeds figures are means, and the interval is no narrower than what single seeds show.
    """
    name = next((n for n in comparison.MAIN_QUALITY[own.workload.task] if own.value(n) is not None), "quality.loss")
    delta = comparison.compare_measurement(own, other, name)
    seeds = f", mean of {delta.seeds.n} seeds" if delta.seeds else ""
    flops = [_mean_over_seeds(record, "flops.executed") for record in (own, other)]
    rates = [_mean_over_seeds(other, rate) for rate in ("routing.alpha_hard", "routing.head_fraction")]
    return Control(
        kind="random_fixed",
        measurement=name,
        n_draws=delta.seeds.n if delta.seeds else 1,
        value=delta.after,
        difference=None if delta.difference is None else (delta.after or 0) - (delta.before or 0),
        interval=_widened(delta),
        flops_ratio=flops[1] / flops[0] if flops[0] and flops[1] is not None else None,
        note=f"by `{other.model.name}`{seeds}",
        rate=next((rate for rate in rates if rate is not None), None),
        n_examples=own.workload.n_examples,
    )


def _mean_over_seeds(record: AuditRecord, name: str) -> float | None:
    values = list(record.values_by_seed(name).values())
    return sum(values) / len(values) if values else None


def _widened(delta: comparison.Delta) -> tuple[float, float] | None:
    """The interval over examples, stretched over the differences of single seeds."""
    if delta.difference is None or delta.seeds is None:
        return delta.difference
    low, high = delta.difference
    return min(low, delta.seeds.low), max(high, delta.seeds.high)
