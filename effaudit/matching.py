"""Turning one model's knob, on the calibration split, until it skips, costs or answers as another model does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from effaudit import plugins, units
from effaudit.assembly import Assembled
from effaudit.errors import EffauditError, unknown_name
from effaudit.profile_spec import AuditSpec, MatchedBy, MatchSpec
from effaudit.record import Caution, Findings, Match
from effaudit.variants._knobs import Knob
from effaudit.workload import Task, Workload

MAX_TURNS = 10  # halvings: a knob is then set to 1/1000 of its range
CLOSE = 0.2  # of the slack, at which turning on is worth nothing
TIMED_S = 1.0  # for the timed rounds of one turn


@dataclass(frozen=True)
class Aim:
    """A figure to be met: the meter that gives it, its name, and how far from it still counts as met."""

    meter: str
    measurement: str
    slack: float
    is_relative: bool = False
    unit: str = "1"

    def shown(self, figure: float) -> str:
        return units.quantity(figure, self.unit, 4)

    def slack_at(self, goal: float) -> float:
        return self.slack * abs(goal) if self.is_relative else self.slack


AIMS: Mapping[MatchedBy, Aim] = {
    "alpha": Aim("routing", "routing.alpha_hard", 0.01),
    "tlops": Aim("routing", "routing.tlops_saved", 0.01),
    "heads": Aim("routing", "routing.head_fraction", 0.02),  # one of 32 heads more or less makes 0.03
    "flops": Aim("flops", "flops.executed", 0.01, is_relative=True, unit="FLOP"),
    "latency": Aim("latency", "latency.p50", 0.03, is_relative=True, unit="s"),
}
QUALITY: Mapping[Task, Aim] = {
    "classification": Aim("quality", "quality.accuracy", 0.005),
    "causal_lm": Aim("quality", "quality.loss", 0.005, is_relative=True, unit="nat"),
}

WorkOf = Callable[[Assembled], Workload]
Remake = Callable[[Assembled, Mapping[str, float]], Assembled]


@dataclass(frozen=True)
class Found:
    """The setting nearest to a goal, the figure there, and the figures at both ends of the knob."""

    setting: float
    reached: float
    ends: tuple[float, float]


def search(figure: Callable[[float], float], knob: Knob, goal: float, slack: float) -> Found:
    """Halves the knob's range towards the goal; `figure` rises or falls with the knob, in steps perhaps.

    Outside of what both ends reach, the nearer end is returned.
    """
    low, high = knob.low, knob.high
    seen = {low: figure(low), high: figure(high)}
    ends = (seen[low], seen[high])
    is_rising = ends[1] > ends[0]

    def found() -> Found:
        setting = min(seen, key=lambda x: abs(seen[x] - goal))
        return Found(setting, seen[setting], (min(ends), max(ends)))

    if not min(ends) <= goal <= max(ends):
        return found()
    for _ in range(MAX_TURNS):
        middle = (low + high) / 2
        if knob.is_integer:
            middle = (int(low) + int(high)) // 2
        if middle in seen or abs(found().reached - goal) <= CLOSE * slack:
            break
        seen[middle] = figure(middle)
        if (seen[middle] < goal) == is_rising:
            low = middle
        else:
            high = middle
    return found()


def match_models(
    specs: Sequence[MatchSpec],
    models: Sequence[Assembled],
    work_of: Callable[[MatchSpec], WorkOf],
    remake: Remake,
    settings: AuditSpec,
) -> list[Assembled]:
    """The models, one after the other with their knobs set as `specs` says; one that cannot meet stays as it was.

    `work_of` gives the workload of a model on the calibration split, `remake` makes a model anew under other options.
    Raises EffauditError when a model has no such knob or figure.
    """
    current = {model.spec.name: model for model in models}
    for spec in specs:
        current[spec.model] = _matched(spec, current[spec.model], current[spec.to], work_of(spec), remake, settings)
    return [current[model.spec.name] for model in models]


def _matched(
    spec: MatchSpec, model: Assembled, other: Assembled, work_of: WorkOf, remake: Remake, settings: AuditSpec
) -> Assembled:
    name, knob = knob_of(spec, model)
    target = work_of(other)
    aim = QUALITY[target.task] if spec.by == "quality" else AIMS[spec.by]
    made: dict[float, Assembled] = {}

    def figure(setting: float) -> float:
        made[setting] = remake(model, {name: setting}) if knob.is_remade else model.with_options({name: setting})
        if aim.meter != "latency":
            return _figures(aim, [work_of(made[setting])], settings)[0]
        # In turns with the target, whose own time drifts with the machine: only the ratio stands.
        own, its = _figures(aim, [work_of(made[setting]), target], settings)
        return own / its * goal

    goal = _figures(aim, [target], settings)[0]
    slack = aim.slack_at(goal)
    found = search(figure, knob, goal, slack)
    match = Match(
        model=spec.to,
        measurement=aim.measurement,
        knob=name,
        goal=goal,
        setting=found.setting,
        reached=found.reached,
        reachable=found.ends,
        n_examples=sum(batch.n_examples for batch in target.batches()),
    )
    if abs(found.reached - goal) > slack:
        return _unmet(model, match, found, aim)
    return replace(made[found.setting], match=match)


def _unmet(model: Assembled, match: Match, found: Found, aim: Aim) -> Assembled:
    is_outside = not found.ends[0] <= match.goal <= found.ends[1]
    nearest = f"the nearest is {aim.shown(found.reached)} at {units.number(found.setting)}"
    why = "out of reach" if is_outside else f"between steps: {nearest}"
    unmet = match.model_copy(update={"setting": None, "reached": None, "reason": why})
    span = f"{aim.shown(found.ends[0])} to {aim.shown(found.ends[1])}"
    caution = Caution(
        code="unmatched",
        text=f"cannot meet {match.measurement} {aim.shown(match.goal)} of {match.model}: {why}; "
        f"`{match.knob}` reaches {span} on the calibration split",
        hint="it is audited as configured: do not read the two as matched",
    )
    return replace(model, match=unmet, cautions=(*model.cautions, caution))


def knob_of(spec: MatchSpec, model: Assembled) -> tuple[str, Knob]:
    """The option that is turned, and its range.

    Raises EffauditError when the variant has no such knob.
    """
    knobs = getattr(model.variant, "KNOBS", {})
    if not knobs:
        hint = f"match `{spec.to}` to it instead, or leave it out"
        raise EffauditError(f"match: `{spec.model}` of variant `{model.config.variant}` has no knob to turn", hint)
    name = spec.knob or next(iter(knobs))
    if name not in knobs:
        raise unknown_name(f"knobs of `{model.config.variant}`", name, knobs)
    return name, knobs[name](model.config)


def _figures(aim: Aim, works: Sequence[Workload], settings: AuditSpec) -> list[float]:
    """The figure of each workload.

    Raises EffauditError when one has none.
    """
    limited = settings.model_copy(update={"max_seconds": min(settings.max_seconds, TIMED_S)})
    found: list[Findings] = plugins.load("meters", aim.meter).measure(works, limited)
    values = []
    for work, findings in zip(works, found, strict=True):
        measurement = next((m for m in findings.measurements if m.name == aim.measurement), None)
        if measurement is None or measurement.value is None:
            why = measurement.method if measurement else "not measured"
            raise EffauditError(
                f"match: `{work.name}` has no {aim.measurement}: {why}", "match by `flops` or `quality`"
            )
        values.append(float(measurement.value))
    return values
