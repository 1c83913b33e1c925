"""Whether the machine was quiet while something was timed."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

from effaudit import device
from effaudit.record import Caution

OTHERS_BUSY = 0.10  # share of all CPUs used by other processes; two busy loops on 2 CPUs slowed a forward 500-fold
STEAL = 0.02  # share of CPU time that a hypervisor gave to other guests


@dataclass(frozen=True)
class Load:
    """Shares (0 to 1) of all CPUs between two moments; None where the system does not tell."""

    others: float | None
    steal: float | None
    average: tuple[float, float, float] | None

    def cautions(self, threads: int) -> tuple[Caution, ...]:
        """`unstable` with its reason and remedy when others took the machine's time."""
        reasons = []
        n = psutil.cpu_count() or 1
        if self.others is not None and self.others > OTHERS_BUSY:
            reasons.append(f"other processes used {self.others * n:.1f} of {n} CPUs")
        if self.steal is not None and self.steal > STEAL:
            reasons.append(f"the hypervisor took away {self.steal:.0%} of CPU time")
        if not reasons:
            return ()
        load = f", load average {self.average[0]:.1f}" if self.average else ""
        text = f"{' and '.join(reasons)} during timing ({threads} thread(s) of ours{load})"
        return (Caution(code="unstable", text=text, hint="stop other work or use a quieter machine, then repeat"),)


class LoadWatch:
    """CPU time of this process and of the whole machine since it was made; ticks are 10 ms."""

    def __init__(self) -> None:
        self._all = psutil.cpu_times()
        self._own = time.process_time()

    def read(self) -> Load:
        now = psutil.cpu_times()
        total = _total(now) - _total(self._all)
        if total <= 0:
            return Load(None, None, device.load_average())
        busy = total - (_unused(now) - _unused(self._all))
        own = time.process_time() - self._own
        steal = getattr(now, "steal", 0.0) - getattr(self._all, "steal", 0.0)
        others = min(1.0, max(0.0, (busy - steal - own) / total))
        return Load(others, steal / total if hasattr(now, "steal") else None, device.load_average())


def _total(times: psutil._ntuples.scputimes) -> float:
    """All CPU time; Linux counts a guest's time in user time already."""
    return float(sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0))


def _unused(times: psutil._ntuples.scputimes) -> float:
    return float(times.idle + getattr(times, "iowait", 0.0))


@contextmanager
def no_gc() -> Iterator[Callable[[], int]]:
    """Keeps garbage collection out of timed regions and restores its state; yields `gc.collect`."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield gc.collect
    finally:
        if was_enabled:
            gc.enable()
