"""Whether energy, and with it CO2, falls with FLOPs or with time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import log

from effaudit.claims.evidence import Estimate, Evidence, Records, mean_of, value
from effaudit.claims.points import Column, points_table
from effaudit.claims.verdict import Bounds, Finding, finding
from effaudit.renderers._cells import Table

ENERGY, TIME, FLOPS = "energy.gross", "latency.p50", "flops.executed"
MODELLED = "energy was modelled from time and a constant power here, so it follows time by construction"


def findings(profiles: Mapping[str, Evidence]) -> list[Finding]:
    """One row over all models of all profiles: a seed's figure is the mean over its models."""
    seeds = sorted({seed for evidence in profiles.values() for seed in evidence.by_seed})
    records = [[e.by_seed[seed] for e in profiles.values() if seed in e.by_seed] for seed in seeds]
    from_flops = mean_of((_gap(group, FLOPS) for group in records), "points")
    from_time = mean_of((_gap(group, TIME) for group in records), "points")
    nearer = mean_of((_nearer(group) for group in records), "points")
    told = finding(
        "all models",
        "CO2 falls with FLOPs",
        "BudgetFormer v1, table II",
        Bounds(low=0.0),
        ours=("energy's distance from time less that from FLOPs", nearer),
        theirs=("energy's distance from FLOPs", from_flops),
        note=f"from time: {from_time}" if from_time else "",
    )
    if nearer is None or _is_measured(records):
        return [told]
    return [replace(told, verdict="cannot be told", reason=MODELLED)]


def _is_measured(groups: list[list[Records]]) -> bool:
    """Whether all energy is a counter's."""
    found = [r.get(ENERGY) for group in groups for records in group for r in records.values()]
    return all(m.source == "measured" for m in found if m is not None and m.value is not None)


def _gap(group: list[Records], name: str) -> float | None:
    """The mean distance of the change of energy from that of another figure, both against dense, as logarithms."""
    gaps = []
    for records in group:
        for model in records:
            pairs = [(value(records, "dense", n), value(records, model, n)) for n in (ENERGY, name)]
            if model != "dense" and all(old and new for old, new in pairs):
                energy, other = (log(new / old) for old, new in pairs if old and new)
                gaps.append(abs(energy - other))
    return sum(gaps) / len(gaps) if gaps else None


def _nearer(group: list[Records]) -> float | None:
    time, flops = _gap(group, TIME), _gap(group, FLOPS)
    return None if time is None or flops is None else time - flops


def points(name: str, evidence: Evidence) -> Table:
    """Energy of each model by what it could be proportional to."""

    def per(unit: str) -> Column:
        def of(model: str) -> Estimate | None:
            def figure(records: Records) -> float | None:
                energy, amount = value(records, model, ENERGY), value(records, model, unit)
                return None if energy is None or not amount else energy / amount

            return evidence.over_seeds(figure, "plain")

        return of

    models = [model for model in next(iter(evidence.by_seed.values()), {}) if "(" not in model]
    heads = {"J / GFLOP": per(FLOPS), "J / s of p50": per(TIME)}
    return points_table(f"Energy per unit of work and of time, {name}", evidence, models, heads)
