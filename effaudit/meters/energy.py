"""How much energy one pass over the workload takes, and the emissions that follow from it.

Each model runs in a window long enough for the counters; the window's energy, divided by the passes in
it, is the energy of one pass. Gross is all that the metered parts of the machine drew, net has the idle
power taken off that was read before.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from effaudit import carbon, device
from effaudit.meters import _codecarbon, _heap, _load, _sampling
from effaudit.meters._instruments import Instruments, UnreadableError, find_instruments
from effaudit.meters._sampling import Sample
from effaudit.profile_spec import AuditSpec
from effaudit.record import Caution, Findings, Measurement, unavailable
from effaudit.workload import Workload

N_PARTS = 4  # readings within a window, to show its spread
MODELLED_IDLE_S = 0.2  # a model has no ticks: its idle power shows at once
MOSTLY = 0.5  # share of gross from which a constant is most of it
NO_COUNTRY = "no carbon intensity given: use --country ISO3, --country world or --intensity G_PER_KWH"

Clock = Callable[[], float]
Sleep = Callable[[float], None]


@dataclass(frozen=True)
class _Reading:
    """Seconds, passes over the sample and J of each source between two moments."""

    seconds: float
    n_cycles: int
    joules: tuple[float, ...]


@dataclass(frozen=True)
class _Window:
    """One model's window: its parts in order of time, and what one cycle of the sample stands for."""

    parts: tuple[_Reading, ...]
    sample: Sample
    place: str  # which turn of how many

    @property
    def seconds(self) -> float:
        return sum(part.seconds for part in self.parts)

    @property
    def n_cycles(self) -> int:
        return sum(part.n_cycles for part in self.parts)

    @property
    def pass_s(self) -> float:
        return self.seconds / self.n_cycles * self.sample.scale

    def per_pass(self) -> list[float]:
        """J of each source for one pass over the workload."""
        totals = (sum(joules) for joules in zip(*(part.joules for part in self.parts), strict=True))
        return [total / self.n_cycles * self.sample.scale for total in totals]


def measure(
    works: Sequence[Workload],
    settings: AuditSpec,
    clock: Clock = time.perf_counter,
    sleep: Sleep = time.sleep,
    instruments: Instruments | None = None,
) -> list[Findings]:
    """energy.gross, energy.net and emissions of each workload; all workloads are on one device.

    `clock` and `sleep` are in seconds. Raises EffauditError for a country without a carbon intensity.
    """
    intensity = carbon.find_intensity(settings.country, settings.intensity)
    tools = instruments or find_instruments(works[0].device, clock)
    if not tools.sources:
        return [_nothing(tools.reason) for _ in works]
    samples = _sampling.sample(works)
    try:
        with device.threads(settings.threads), _load.no_gc():
            _heap.settle()
            watch = _load.LoadWatch()
            idle = _idle(tools, settings, clock, sleep)
            windows = _run_windows(works, samples, tools, settings, clock)
            shared = (*tools.cautions, *watch.read().cautions(settings.threads))
    except UnreadableError as error:
        return [_nothing(str(error)) for _ in works]
    return [_findings(window, idle, tools, intensity, settings.pue, shared) for window in windows]


def _idle(tools: Instruments, settings: AuditSpec, clock: Clock, sleep: Sleep) -> list[_Reading]:
    """What the machine draws while this process sleeps, in parts."""
    is_all_modelled = all(source.is_modelled for source in tools.sources)
    seconds = MODELLED_IDLE_S if is_all_modelled else tools.window_s(settings.energy_window_s)
    parts = []
    for _ in range(N_PARTS):
        start, before = clock(), tools.read()
        sleep(seconds / N_PARTS)
        parts.append(_since(start, before, 0, tools, clock))
    return parts


def _since(start: float, before: list[float], n_cycles: int, tools: Instruments, clock: Clock) -> _Reading:
    joules = tuple(now - then for now, then in zip(tools.read(), before, strict=True))
    return _Reading(clock() - start, n_cycles, joules)


def _run_windows(
    works: Sequence[Workload], samples: Sequence[Sample], tools: Instruments, settings: AuditSpec, clock: Clock
) -> list[_Window]:
    """One window a model, in random order so that a warming machine favours none; returned in the order of `works`."""
    order = list(range(len(works)))
    random.Random(0).shuffle(order)  # own generator: the audit's random state stays as it was
    seconds = tools.window_s(settings.energy_window_s)
    windows = {}
    for turn, i in enumerate(order, 1):
        fitted = _fit(works[i], samples[i], seconds, clock)
        parts = _run_window(works[i], fitted, seconds, tools, clock)
        windows[i] = _Window(parts, fitted, f"turn {turn} of {len(works)} in random order")
    return [windows[i] for i in range(len(works))]


def _fit(work: Workload, sample: Sample, seconds: float, clock: Clock) -> Sample:
    """As much of the sample as fits into the window, warmed up."""
    work.run(sample.batches[0])
    device.synchronize(work.device)
    start = clock()
    work.run(sample.batches[0])
    device.synchronize(work.device)
    batch_s = clock() - start
    fitted = sample.thinned(int(seconds / batch_s) if batch_s > 0 else len(sample.batches))
    _run_cycle(work, fitted)
    return fitted


def _run_cycle(work: Workload, sample: Sample) -> None:
    for batch in sample.batches:
        work.run(batch)
    device.synchronize(work.device)


def _run_window(
    work: Workload, sample: Sample, seconds: float, tools: Instruments, clock: Clock
) -> tuple[_Reading, ...]:
    """Whole cycles until the window is full, read about every quarter of it."""
    parts: list[_Reading] = []
    begin = start = clock()
    before, n_cycles = tools.read(), 0
    while True:
        _run_cycle(work, sample)
        n_cycles += 1
        elapsed = clock() - begin
        if elapsed >= seconds * (len(parts) + 1) / N_PARTS or elapsed >= seconds:
            parts.append(_since(start, before, n_cycles, tools, clock))
            if elapsed >= seconds:
                return tuple(parts)
            start, before, n_cycles = clock(), tools.read(), 0


def _findings(
    window: _Window,
    idle: list[_Reading],
    tools: Instruments,
    intensity: carbon.Intensity | None,
    pue: float,
    shared: tuple[Caution, ...],
) -> Findings:
    joules = window.per_pass()
    stuck = [s.domain for s, j in zip(tools.sources, joules, strict=True) if j <= 0 and not s.is_modelled]
    if stuck or sum(joules) <= 0:
        which = ", ".join(stuck) or "every source"
        return _nothing(f"window too short: the counter of {which} did not move in {window.seconds:.3g} s")
    gross = _gross(window, joules, tools, (*shared, *_constant_share(joules, tools)))
    return Findings(measurements=(gross, _net(gross, window, idle), _emissions(gross, intensity, pue)))


def _gross(window: _Window, joules: list[float], tools: Instruments, cautions: tuple[Caution, ...]) -> Measurement:
    shares = "; ".join(f"{s.domain} {j:.3g} J ({s.method})" for s, j in zip(tools.sources, joules, strict=True))
    n_passes = window.n_cycles / window.sample.scale
    how = f"window of {window.seconds:.2f} s, {n_passes:.3g} passes, {window.sample.scope}, {window.place}"
    scale = window.sample.scale
    return Measurement(
        name="energy.gross",
        unit="J",
        better="lower",
        source="modelled" if tools.is_modelled else "measured",
        method=f"{shares}; {how}",
        value=sum(joules),
        samples=tuple(sum(part.joules) / part.n_cycles * scale for part in window.parts),
        cautions=cautions,
    )


def _constant_share(joules: list[float], tools: Instruments) -> tuple[Caution, ...]:
    constant = sum(j for s, j in zip(tools.sources, joules, strict=True) if isinstance(s, _codecarbon.Ram))
    if constant <= MOSTLY * sum(joules):
        return ()
    text = f"{constant / sum(joules):.0%} of energy.gross is a constant power assumed for RAM, so it follows time"
    return (Caution(code="mostly_constant", text=text, hint="energy.net leaves it out"),)


def _net(gross: Measurement, window: _Window, idle: list[_Reading]) -> Measurement:
    """Gross less what the machine would have drawn in the same time without the model."""
    assert gross.value is not None
    powers = [sum(part.joules) / part.seconds for part in idle]
    idle_w = sum(sum(part.joules) for part in idle) / sum(part.seconds for part in idle)
    net = gross.value - idle_w * window.pass_s
    told = f"idle power {idle_w:.3g} W before ({min(powers):.3g} to {max(powers):.3g} W)"
    if net <= 0:
        reason = f"{told} is not below the {gross.value / window.pass_s:.3g} W under load: the machine was not idle"
        return unavailable("energy.net", "J", "lower", reason, *gross.cautions)
    method = f"energy.gross less {told} for the {window.pass_s:.3g} s of a pass"
    scale = window.sample.scale
    samples = tuple((sum(p.joules) - idle_w * p.seconds) / p.n_cycles * scale for p in window.parts)
    return gross.model_copy(update={"name": "energy.net", "value": net, "method": method, "samples": samples})


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
    names = ("energy.gross", "energy.net")
    return Findings(measurements=(*(unavailable(name, "J", "lower", reason) for name in names), emissions))
