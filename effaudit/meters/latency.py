"""How long a batch takes, models in turns on a device that is waited for.

Samples are seconds per batch, round by round and in the order of the batches within a round, so those
of models that were timed together pair by index: same batch, same round, moments apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from effaudit import device, stats
from effaudit.meters import _heap, _load, _sampling
from effaudit.meters._sampling import Sample
from effaudit.profile_spec import AuditSpec
from effaudit.record import Better, Caution, Findings, Measurement, unavailable
from effaudit.workload import Batch, Workload

WARMUP_RUNS = 2  # per distinct shape: the first builds kernels and caches, the second runs with them
TIGHT = 0.01  # half width of the median at which more rounds tell nothing more
MAX_SAMPLES = 1000  # per model: keeps records small

Clock = Callable[[], float]


@dataclass
class _Turn:
    """One model's part in the rounds."""

    work: Workload
    sample: Sample
    first_s: float
    batch_s: float  # one batch once warm, a guess that only sizes the sample
    times: list[float] = field(default_factory=list)

    @property
    def noise(self) -> NDArray[np.float64]:
        """Each sample over the median of its batch, so that batches of unlike size do not look like noise."""
        rounds: NDArray[np.float64] = np.asarray(self.times).reshape(-1, len(self.sample.batches))
        return np.divide(rounds, np.median(rounds, axis=0)).ravel()


def measure(works: Sequence[Workload], settings: AuditSpec, clock: Clock = time.perf_counter) -> list[Findings]:
    """latency.* and throughput.* of each workload; `clock` returns seconds."""
    samples = _sampling.sample(works)
    with device.threads(settings.threads), _load.no_gc() as collect:
        _heap.settle()
        turns = [_first(work, sample, clock) for work, sample in zip(works, samples, strict=True)]
        _fit(turns, settings)
        for turn in turns:
            _warm_up(turn)
        collect()
        watch = _load.LoadWatch()
        n_rounds = _run_rounds(turns, settings, clock)
        load = watch.read()
    shared = load.cautions(settings.threads)
    return [
        _findings(turn, n_rounds, len(turns), settings.threads, (*shared, *_slow_dtype(turn.work))) for turn in turns
    ]


def _timed(work: Workload, batch: Batch, clock: Clock) -> float:
    device.synchronize(work.device)
    start = clock()
    work.run(batch)
    device.synchronize(work.device)
    return clock() - start


def _first(work: Workload, sample: Sample, clock: Clock) -> _Turn:
    first_s = _timed(work, sample.batches[0], clock)
    return _Turn(work, sample, first_s, _timed(work, sample.batches[0], clock))


def _fit(turns: list[_Turn], settings: AuditSpec) -> None:
    """Thins the samples, all alike, so that the rounds asked for fit into the time allowed."""
    per_batch = sum(turn.batch_s for turn in turns)
    n = int(settings.max_seconds / (settings.rounds * per_batch)) if per_batch > 0 else _sampling.MAX_BATCHES
    for turn in turns:
        turn.sample = turn.sample.thinned(n)


def _warm_up(turn: _Turn) -> None:
    shapes = {batch.shape: batch for batch in turn.sample.batches}
    for batch in shapes.values():
        for _ in range(WARMUP_RUNS):
            turn.work.run(batch)
    device.synchronize(turn.work.device)


def _run_rounds(turns: list[_Turn], settings: AuditSpec, clock: Clock) -> int:
    """Rounds until the medians are sure or the time is used up, never fewer than asked for; returns how many."""
    start, n_rounds, next_check = clock(), 0, settings.rounds
    while True:
        _run_round(turns, clock)
        n_rounds += 1
        if n_rounds < settings.rounds:
            continue
        most = max(len(turn.times) for turn in turns)
        if clock() - start >= settings.max_seconds or most >= MAX_SAMPLES:
            return n_rounds
        if n_rounds >= next_check:  # checked ever more rarely: a check costs more than a small model's round
            if all(_is_sure(turn) for turn in turns):
                return n_rounds
            next_check = 1 + n_rounds * 5 // 4


def _run_round(turns: list[_Turn], clock: Clock) -> None:
    """Every batch once for every model; the order turns at each batch and, for one batch, at each round."""
    forward = len(turns[0].times) // len(turns[0].sample.batches) % 2 == 0
    for b in range(max(len(turn.sample.batches) for turn in turns)):
        for turn in turns if forward else reversed(turns):
            if b < len(turn.sample.batches):
                turn.times.append(_timed(turn.work, turn.sample.batches[b], clock))
        forward = not forward


def _is_sure(turn: _Turn) -> bool:
    """Whether the median is known to TIGHT and there are samples enough for p99."""
    interval = stats.median_interval([float(x) for x in turn.noise])
    return len(turn.times) >= stats.needed_for(99) and interval is not None and interval.half_width < TIGHT


def _findings(turn: _Turn, n_rounds: int, n_models: int, threads: int, shared: tuple[Caution, ...]) -> Findings:
    order = f", {n_models} models in alternating turns" if n_models > 1 else ""
    method = f"synchronised wall clock, {turn.sample.scope}, {n_rounds} rounds{order}, {threads} thread(s)"
    cautions = (*shared, *_noise(turn))
    found = [_quantile(turn, f"latency.p{q}", q, method, cautions) for q in (50, 95, 99)]
    found.append(_first_batch(turn, shared))
    found += _throughput(turn, n_rounds, method, cautions)
    return Findings(measurements=tuple(found))


def _quantile(turn: _Turn, name: str, q: int, method: str, cautions: tuple[Caution, ...]) -> Measurement:
    value = stats.median(turn.times) if q == 50 else stats.percentile(turn.times, q)
    if value is None:
        hint = "more rounds or more batches give it"
        return unavailable(name, "s", "lower", f"{stats.too_few(len(turn.times), stats.needed_for(q))}; {hint}")
    return _measured(name, "s", "lower", method, value, cautions, tuple(turn.times))


def _first_batch(turn: _Turn, cautions: tuple[Caution, ...]) -> Measurement:
    method = "first batch of the timing pass, before its warm-up; earlier passes of the audit may have warmed caches"
    return _measured("latency.first", "s", "lower", method, turn.first_s, cautions, (turn.first_s,))


def _throughput(turn: _Turn, n_rounds: int, method: str, cautions: tuple[Caution, ...]) -> list[Measurement]:
    """Examples and real tokens over total time; the samples are the rates of the single rounds."""
    round_s = np.asarray(turn.times).reshape(n_rounds, -1).sum(axis=1)
    if round_s.min() <= 0:
        reason = "the clock did not advance"
        return [unavailable(f"throughput.{what}", "1/s", "higher", reason) for what in ("examples", "tokens")]
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


def _noise(turn: _Turn) -> tuple[Caution, ...]:
    spread = stats.relative_iqr([float(x) for x in turn.noise])
    if spread is None or spread <= stats.NOISY_IQR:
        return ()
    degree = "far too much" if spread > stats.VERY_NOISY_IQR else "much"
    text = f"the middle half of the timings of one batch spans {spread:.0%} of its median, {degree} for a quiet machine"
    return (
        Caution(code="unstable", text=text, hint="stop other work, pin the clock frequency, or allow more seconds"),
    )


def _slow_dtype(work: Workload) -> tuple[Caution, ...]:
    if work.dtype != "bfloat16" or device.has_fast_bf16(work.device):
        return ()
    text = "this CPU has no bfloat16 instructions (AVX512-BF16, AMX, Arm BF16): bfloat16 is emulated and slow"
    return (Caution(code="slow_dtype", text=text, hint="use --dtype float32"),)
