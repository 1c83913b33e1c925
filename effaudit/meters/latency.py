"""How long a batch takes, models in turns on a device that is waited for."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from effaudit import device, stats
from effaudit.meters import _heap, _load, _sampling, _turns
from effaudit.meters._load import Sleep
from effaudit.meters._turns import Clock, Turn
from effaudit.micro_batch import choose_micro_batch
from effaudit.profile_spec import AuditSpec
from effaudit.record import Better, Caution, Findings, Measurement, unavailable
from effaudit.workload import Workload

CHOICE_S = 2.0  # a batch that takes longer stays whole: to try the sizes of passes would take several more of it
STOPPED_CLOCK = "the clock did not advance"


def measure(
    works: Sequence[Workload], settings: AuditSpec, clock: Clock = time.perf_counter, sleep: Sleep = time.sleep
) -> list[Findings]:
    """latency.* and throughput.* of each workload; `clock` and `sleep` are in seconds."""
    samples = _sampling.sample(works)
    are_cold = [work.is_cold for work in works]
    with device.threads(settings.threads), _load.no_gc() as collect:
        _heap.settle()
        before, governors = _load.look(sleep), [device.governor()]
        turns = _turns.first_turns(works, samples, clock)
        for turn in turns:
            _choose_passes(turn, clock)
        _turns.warm_up(turns, settings, clock)
        collect()
        watch = _load.LoadWatch()
        n_rounds = _turns.run_rounds(turns, settings, clock)
        during = watch.read()
        course = _load.Course(before, during, _load.look(sleep))
        governors.append(device.governor())
    threads = settings.threads
    shared = (
        *course.cautions(threads),
        *_load.thread_cautions(threads),
        *_load.governor_cautions(governors),
    )
    return [
        _findings(turn, is_cold, n_rounds, len(turns), threads, (*shared, *_slow_dtype(turn.work)))
        for turn, is_cold in zip(turns, are_cold, strict=True)
    ]


def _choose_passes(turn: Turn, clock: Clock) -> None:
    batches = turn.sample.batches
    largest = max(batches, key=lambda batch: batch.n_positions)
    if turn.first_s * largest.n_positions <= CHOICE_S * batches[0].n_positions:
        choose_micro_batch(turn.work.model, largest, clock=clock)


def _findings(
    turn: Turn, is_cold: bool, n_rounds: int, n_models: int, threads: int, shared: tuple[Caution, ...]
) -> Findings:
    order = f", {n_models} models in alternating turns" if n_models > 1 else ""
    tokens = getattr(turn.work.model, "tokens_per_pass", None)
    passes = f", {tokens} tokens a pass" if tokens is not None else ""
    method = f"synchronised wall clock, {turn.sample.scope}, {n_rounds} rounds{order}, {threads} thread(s){passes}"
    cautions = (*shared, *_noise(turn))
    found = [_quantile(turn, f"latency.p{q}", q, method, cautions) for q in (50, 95, 99)]
    found.append(_first_batch(turn, is_cold, shared))
    found += _throughput(turn, n_rounds, method, cautions)
    return Findings(measurements=tuple(found))


def _quantile(turn: Turn, name: str, q: int, method: str, cautions: tuple[Caution, ...]) -> Measurement:
    value = stats.median(turn.times) if q == 50 else stats.percentile(turn.times, q)
    if value is None:
        hint = "more rounds or more batches give it"
        return unavailable(name, "s", "lower", f"{stats.too_few(len(turn.times), stats.needed_for(q))}; {hint}")
    if value <= 0:
        return unavailable(name, "s", "lower", STOPPED_CLOCK)
    return _measured(name, "s", "lower", method, value, cautions, tuple(turn.times))


def _first_batch(turn: Turn, is_cold: bool, cautions: tuple[Caution, ...]) -> Measurement:
    if turn.first_s <= 0:
        return unavailable("latency.first", "s", "lower", STOPPED_CLOCK)
    method = "first batch that the model ran, what it sets up once included"
    if not is_cold:
        method = "first batch of the timing pass; the model had run before, so caches may have been warm"
    return _measured("latency.first", "s", "lower", method, turn.first_s, cautions, (turn.first_s,))


def _throughput(turn: Turn, n_rounds: int, method: str, cautions: tuple[Caution, ...]) -> list[Measurement]:
    """Examples and real tokens over total time; the samples are the rates of the single rounds."""
    round_s = np.asarray(turn.times).reshape(n_rounds, -1).sum(axis=1)
    if round_s.min() <= 0:
        return [unavailable(f"throughput.{what}", "1/s", "higher", STOPPED_CLOCK) for what in ("examples", "tokens")]
    batches = turn.sample.batches
    counts = {"examples": sum(batch.n_examples for batch in batches)}
    found = []
    if all(batch.has_tokens for batch in batches):
        counts["tokens"] = sum(int(batch.mask.sum()) for batch in batches)
    else:
        found.append(unavailable("throughput.tokens", "1/s", "higher", "the inputs are no tokens"))
    for what, n in counts.items():
        rates = tuple(float(n / seconds) for seconds in round_s)
        told = f"{what} over total time, padding excluded; {method}"
        value = n * n_rounds / float(round_s.sum())
        found.append(_measured(f"throughput.{what}", "1/s", "higher", told, value, cautions, rates))
    return found


def _measured(
    name: str,
    unit: str,
    better: Better,
    method: str,
    value: float,
    cautions: tuple[Caution, ...],
    samples: tuple[float, ...] = (),
) -> Measurement:
    return Measurement(
        name=name,
        unit=unit,
        better=better,
        source="measured",
        method=method,
        value=value,
        samples=samples,
        cautions=cautions,
    )


def _noise(turn: Turn) -> tuple[Caution, ...]:
    spread = stats.relative_iqr([float(x) for x in turn.noise])
    if spread is None or spread <= stats.NOISY_IQR:
        return ()
    degree = "far too much" if spread > stats.VERY_NOISY_IQR else "much"
    text = f"the middle half of the timings of one batch spans {spread:.0%} of its median, {degree} for a quiet machine"
    return (
        Caution(code="unstable", text=text, hint="stop other work, pin the clock frequency, or allow more seconds"),
    )


def _slow_dtype(work: Workload) -> tuple[Caution, ...]:
    if device.has_fast(work.dtype, work.device):
        return ()
    sets = device.INSTRUCTIONS[work.dtype]
    text = f"this CPU has no {work.dtype} instructions ({sets}): {work.dtype} is emulated and slow"
    return (Caution(code="slow_dtype", text=text, hint="use --dtype float32"),)
