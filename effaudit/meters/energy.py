"""How much energy one pass over the workload takes, and the emissions that follow from it.

Each model runs in a window long enough for the counters; the window's energy, divided by the passes in
it, is the energy of one pass. Gross is all that the metered parts of the machine drew, net has the idle
power taken off that was read before.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from effaudit import carbon, device
from effaudit.meters import _codecarbon, _heap, _load, _sampling, _windows
from effaudit.meters._instruments import Instruments, UnreadableError, find_instruments
from effaudit.meters._sources import Part
from effaudit.meters._windows import Clock, Reading, Sleep, Window
from effaudit.profile_spec import AuditSpec
from effaudit.record import Caution, Findings, Measurement, unavailable
from effaudit.workload import Workload

MOSTLY = 0.5  # share of gross from which a constant is most of it
NO_COUNTRY = "no carbon intensity given: use --country ISO3, --country world or --intensity G_PER_KWH"
PARTS: dict[Part, str] = {  # and why a part may have no figure of its own
    "cpu": "no counter of the CPU alone",
    "ram": "no DRAM counter beside that of the CPU, and no model",
    "gpu": "the models ran on the CPU",
}


def measure(
    works: Sequence[Workload],
    settings: AuditSpec,
    clock: Clock = time.perf_counter,
    sleep: Sleep = time.sleep,
    instruments: Instruments | None = None,
) -> list[Findings]:
    """energy.gross, .net, .cpu, .ram, .gpu, .idle_power and emissions of each workload; all are on one device.

    `clock` and `sleep` are in seconds. Raises EffauditError for a place without a carbon intensity.
    """
    intensity = carbon.find_intensity(settings.country, settings.region, settings.intensity)
    tools = instruments or find_instruments(works[0].device, clock)
    if not tools.sources:
        return [_nothing(tools.reason) for _ in works]
    samples = _sampling.sample(works)
    try:
        with device.threads(settings.threads), _load.no_gc(), tools.running():
            _heap.settle()
            before = _load.LoadWatch()
            idle = _windows.idle(tools, settings.energy_window_s, clock, sleep)
            load_before, watch = before.read(), _load.LoadWatch()
            windows = _windows.run_turns(works, samples, tools, settings.energy_window_s, clock)
            course = _load.Course(load_before, watch.read(), _load.look(sleep))
    except UnreadableError as error:
        return [_nothing(str(error)) for _ in works]
    shared = (*tools.cautions, *course.cautions(settings.threads))
    return [
        Findings(measurements=tuple(_measurements(window, idle, tools, intensity, settings.pue, shared)))
        for window in windows
    ]


def _measurements(
    window: Window,
    idle: tuple[Reading, ...],
    tools: Instruments,
    intensity: carbon.Intensity | None,
    pue: float,
    shared: tuple[Caution, ...],
) -> Iterator[Measurement]:
    if reason := _standstill(window, tools):
        yield from _nothing(reason).measurements
        return
    how = _how(window)
    cautions = (*shared, *_constant_share(window, tools))
    everything = tuple(range(len(tools.sources)))
    gross = _joules("energy.gross", everything, window, tools, how, cautions)
    yield gross
    yield _net(gross, window, idle)
    for part, lacking in PARTS.items():
        name, of = f"energy.{part}", tools.of(part)
        yield _joules(name, of, window, tools, how, shared) if of else unavailable(name, "J", "lower", lacking)
    yield _idle_power(idle, tools, shared)
    yield _emissions(gross, intensity, pue)


def _standstill(window: Window, tools: Instruments) -> str:
    """Why the counters say nothing about this window, or an empty string."""
    stuck = [
        source.domain
        for i, source in enumerate(tools.sources)
        if not source.is_modelled and any(part.joules[i] <= 0 for part in window.parts)
    ]
    if not stuck and all(sum(part.joules) > 0 for part in window.parts):
        return ""
    which = ", ".join(stuck) or "every source"
    return f"window too short: the counter of {which} did not move in a part of {window.seconds:.3g} s"


def _how(window: Window) -> str:
    turns = " and ".join(map(str, window.places))
    order = f"turn{'s' if len(window.places) > 1 else ''} {turns} of {window.n_places}, order drawn at random"
    return f"window of {window.seconds:.2f} s, {window.n_passes:.3g} passes, {window.sample.scope}, {order}"


def _joules(
    name: str, of: Sequence[int], window: Window, tools: Instruments, how: str, cautions: tuple[Caution, ...]
) -> Measurement:
    """J of some of the sources for one pass over the workload."""
    sources = [tools.sources[i] for i in of]
    totals = [sum(part.joules[i] for part in window.parts) / window.n_passes for i in of]
    whole = sum(totals)
    shares = "; ".join(
        f"{s.domain} {j:.3g} J{f' ({j / whole:.0%})' if len(of) > 1 else ''}: {s.method}"
        for s, j in zip(sources, totals, strict=True)
    )
    scale = window.sample.scale
    return Measurement(
        name=name,
        unit="J",
        better="lower",
        source="modelled" if any(source.is_modelled for source in sources) else "measured",
        method=f"{shares}; {how}",
        value=whole,
        samples=tuple(sum(part.joules[i] for i in of) / part.n_cycles * scale for part in window.parts),
        cautions=cautions,
    )


def _constant_share(window: Window, tools: Instruments) -> tuple[Caution, ...]:
    joules = [sum(part.joules[i] for part in window.parts) for i in range(len(tools.sources))]
    constant = sum(j for s, j in zip(tools.sources, joules, strict=True) if isinstance(s, _codecarbon.Ram))
    if constant <= MOSTLY * sum(joules):
        return ()
    text = f"{constant / sum(joules):.0%} of energy.gross is a constant power assumed for RAM, so it follows time"
    return (Caution(code="mostly_constant", text=text, hint="energy.net leaves it out"),)


def _net(gross: Measurement, window: Window, idle: tuple[Reading, ...]) -> Measurement:
    """Gross less what the machine would have drawn in the same time without the model."""
    assert gross.value is not None
    idle_w = _power(idle)
    net = gross.value - idle_w * window.pass_s
    told = f"idle power {_spread(idle)}"
    if net <= 0:
        reason = f"{told} is not below the {gross.value / window.pass_s:.3g} W under load: the machine was not idle"
        return unavailable("energy.net", "J", "lower", reason, *gross.cautions)
    method = f"energy.gross less {told} for the {window.pass_s:.3g} s of a pass"
    scale = window.sample.scale
    samples = tuple((sum(p.joules) - idle_w * p.seconds) / p.n_cycles * scale for p in window.parts)
    kept = tuple(caution for caution in gross.cautions if caution.code != "mostly_constant")
    return gross.model_copy(
        update={"name": "energy.net", "value": net, "method": method, "samples": samples, "cautions": kept}
    )


def _power(idle: tuple[Reading, ...]) -> float:
    return sum(sum(part.joules) for part in idle) / sum(part.seconds for part in idle)


def _spread(idle: tuple[Reading, ...]) -> str:
    powers = [sum(part.joules) / part.seconds for part in idle]
    return f"{_power(idle):.3g} W before ({min(powers):.3g} to {max(powers):.3g} W)"


def _idle_power(idle: tuple[Reading, ...], tools: Instruments, cautions: tuple[Caution, ...]) -> Measurement:
    seconds = sum(part.seconds for part in idle)
    domains = ", ".join(source.domain for source in tools.sources)
    return Measurement(
        name="energy.idle_power",
        unit="W",
        better="neither",
        source="modelled" if tools.is_modelled else "measured",
        method=f"{domains}: {_spread(idle)} while this process slept for {seconds:.2f} s",
        value=_power(idle),
        samples=tuple(sum(part.joules) / part.seconds for part in idle),
        cautions=cautions,
    )


def _emissions(gross: Measurement, intensity: carbon.Intensity | None, pue: float) -> Measurement:
    assert gross.value is not None
    if intensity is None:
        return unavailable("emissions", "g", "lower", NO_COUNTRY)
    method = f"energy.gross x {intensity.g_per_kwh:g} gCO2e/kWh ({intensity.origin}) x PUE {pue:g}"
    return Measurement(
        name="emissions",
        unit="g",
        better="lower",
        source=gross.source,
        method=method,
        value=carbon.grams(gross.value, intensity, pue),
        samples=tuple(carbon.grams(sample, intensity, pue) for sample in gross.samples),
        cautions=(*gross.cautions, *intensity.cautions),
    )


def _nothing(reason: str) -> Findings:
    emissions = unavailable("emissions", "g", "lower", f"energy.gross is unavailable: {reason}")
    names = ("energy.gross", "energy.net", *(f"energy.{part}" for part in PARTS))
    joules = [unavailable(name, "J", "lower", reason) for name in names]
    idle = unavailable("energy.idle_power", "W", "neither", reason)
    return Findings(measurements=(*joules, idle, emissions))
