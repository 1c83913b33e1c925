"""How many FLOP/s this machine reaches at most, and which timed figures claim more."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from effaudit import device as devices
from effaudit import onednn, units
from effaudit.record import Caution, Measurement

SIZES = (128, 256, 512, 1024, 2048, 4096, 8192)  # of square products: the best size differs from machine to machine
REPEATS = 5  # the best counts: what others disturb is no peak
LIMIT_S = 0.3  # small sizes come first, so even a slow machine gets a figure
IMPLAUSIBLE = 1.5  # times the best product seen: a higher clock moment and a busy estimate explain less

Clock = Callable[[], float]


def estimate(device: torch.device, dtype: str, clock: Clock = time.perf_counter) -> float | None:
    """FLOP/s of the fastest square product of that type, by any library here; None where none could run."""
    return max(_rates(device, getattr(torch, dtype), clock), default=None)


def _rates(device: torch.device, dtype: torch.dtype, clock: Clock) -> Iterator[float]:
    begin = clock()
    with torch.inference_mode():
        for size in SIZES:
            try:
                matrix = torch.ones(size, size, device=device, dtype=dtype)  # (N, N)
                for product in REPEATS * _products(device, dtype):
                    devices.synchronize(device)
                    start = clock()
                    product(matrix, matrix)
                    devices.synchronize(device)
                    if (taken := clock() - start) > 0:
                        yield 2 * size**3 / taken
                    if clock() - begin >= LIMIT_S:
                        return
            except RuntimeError:  # a type or a size that this device cannot do
                return


def _products(device: torch.device, dtype: torch.dtype) -> list[Callable[[Any, Any], Any]]:
    """torch's own, and the one that its compiler may take in its place: twice as fast on some CPUs."""
    is_by_two = onednn.HAS_LINEAR and device.type == "cpu" and dtype == torch.float32
    return [operator.matmul, onednn.linear] if is_by_two else [operator.matmul]


def marked(measurements: Sequence[Measurement], peak: float | None, n_examples: int) -> tuple[Measurement, ...]:
    """The measurements, those of time marked `implausible` where the FLOPs executed in it exceed the peak."""
    known = {m.name: m.value for m in measurements}
    flops, rate = known.get("flops.executed"), known.get("throughput.examples")
    if not peak or not flops or not rate or not n_examples:
        return tuple(measurements)
    reached = flops / n_examples * rate
    if reached <= IMPLAUSIBLE * peak:
        return tuple(measurements)
    text = (
        f"implausible: {units.quantity(reached, 'FLOP/s')}, and large matrix products reach "
        f"{units.quantity(peak, 'FLOP/s')} here"
    )
    hint = (
        "do not use these timings: the device was not waited for, work was counted that did not run, "
        "or the model computes in a faster type than --dtype says"
    )
    caution = Caution(code="implausible", text=text, hint=hint)
    return tuple(_with(m, caution) if _is_timed(m) else m for m in measurements)


def _is_timed(m: Measurement) -> bool:
    return m.value is not None and m.name.startswith(("latency.p", "throughput."))


def _with(m: Measurement, caution: Caution) -> Measurement:
    return m.model_copy(update={"cautions": (*m.cautions, caution)})
