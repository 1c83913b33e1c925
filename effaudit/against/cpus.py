"""Which CPU both sides of a round shall run on: the one that others use least."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import psutil

ALIKE = 0.05  # CPUs whose use by others differs by less take turns


def busy_seconds() -> list[float]:
    """By CPU, since boot; steps of 10 ms."""
    return [sum(t) - t.idle - getattr(t, "iowait", 0.0) for t in psutil.cpu_times(percpu=True)]


class QuietestCpu:
    """Remembers what of each CPU's use was the caller's own."""

    def __init__(self, read: Callable[[], list[float]] = busy_seconds) -> None:
        self._read = read
        self._cpus = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []
        self._busy, self._at = read(), time.monotonic()
        self._chosen, self._own_s = -1, 0.0

    def used(self, seconds: float) -> None:
        """That the chosen CPU ran for the caller."""
        self._own_s += seconds

    def choose(self) -> int | None:
        """The CPU that others used least since the last choice; None where the system gives no choice."""
        if len(self._cpus) < 2:
            return None
        busy, now = self._read(), time.monotonic()
        others = {cpu: busy[cpu] - self._busy[cpu] - self._own_s * (cpu == self._chosen) for cpu in self._cpus}
        limit = min(others.values()) + ALIKE * (now - self._at)
        quiet = [cpu for cpu in self._cpus if others[cpu] <= limit]
        self._chosen = next((cpu for cpu in quiet if cpu > self._chosen), quiet[0])
        self._busy, self._at, self._own_s = busy, now, 0.0
        return self._chosen
