"""Whether the machine was quiet before, while and after something was timed."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

from effaudit import device
from effaudit.meters import _throttling
from effaudit.record import Caution

OTHERS_BUSY = 0.10  # share of the CPUs used by other processes; two busy loops on 2 CPUs slowed a forward 500-fold
STEAL = 0.02  # share of CPU time that a hypervisor gave to other guests
STOPPED = 0.01  # share of quota periods in which this process was stopped: one in a hundred moves p99
LOOK_S = 0.2  # how long the machine is looked at before and after
MIN_CPU_S = 0.1  # of all CPUs together: below, ticks of 10 ms say nothing
FOLLOWING = ("powersave", "conservative", "ondemand", "schedutil")  # governors that let the clock follow the load

Sleep = Callable[[float], None]


@dataclass(frozen=True)
class Load:
    """Shares (0 to 1) of the CPUs that this process may use, between two moments; None where the system is silent."""

    others: float | None
    steal: float | None
    average: tuple[float, float, float] | None
    stopped: float | None = None
    n_cpus: int = 1

    @property
    def is_crowded(self) -> bool:
        """Whether others took CPU time; by the load average where the system does not tell it."""
        if self.others is not None:
            return self.others > OTHERS_BUSY
        return self.average is not None and self.average[0] > self.n_cpus

    @property
    def is_stolen(self) -> bool:
        return self.steal is not None and self.steal > STEAL

    @property
    def is_stopped(self) -> bool:
        return self.stopped is not None and self.stopped > STOPPED


@dataclass(frozen=True)
class Course:
    """The load before, during and after."""

    before: Load
    during: Load
    after: Load

    def cautions(self, threads: int) -> tuple[Caution, ...]:
        """`unstable` with its reasons and remedies when others took the machine's time."""
        told = {"before": self.before, "during": self.during, "after": self.after}
        return _cautions(told, f"timing used {threads} thread(s)")


class LoadWatch:
    """CPU time of this process with its children and of all the CPUs it may use, since it was made; ticks are 10 ms."""

    def __init__(self) -> None:
        self._periods = _throttling.read_periods()
        self._own, self._all = own_cpu_s(), _cpu_times()

    def read(self) -> Load:
        now, own = _cpu_times(), own_cpu_s() - self._own
        stopped = _throttling.stopped_share(self._periods, _throttling.read_periods())
        average, n = device.load_average(), len(now) or 1
        total = sum(map(_total, now)) - sum(map(_total, self._all))
        if total < MIN_CPU_S or len(now) != len(self._all):
            return Load(None, None, average, stopped, n)
        busy = total - (sum(map(_unused, now)) - sum(map(_unused, self._all)))
        steal = sum(map(_steal, now)) - sum(map(_steal, self._all))
        others = min(1.0, max(0.0, (busy - steal - own) / total))
        return Load(others, steal / total, average, stopped, n)


def look(sleep: Sleep) -> Load:
    """The load while this process sleeps for a moment."""
    watch = LoadWatch()
    sleep(LOOK_S)
    return watch.read()


def cautions_now(load: Load) -> tuple[Caution, ...]:
    """`unstable` where something timed at this moment would be."""
    return _cautions({"now": load}, f"{load.n_cpus} CPU(s)")


def governor_cautions(seen: Iterable[str | None]) -> tuple[Caution, ...]:
    """`frequency` where one of the governors seen lets the CPU's clock follow the load instead of staying."""
    following = sorted({governor for governor in seen if governor in FOLLOWING and governor is not None})
    if not following:
        return ()
    told = ", ".join(following)
    text = f"the CPU's frequency follows the load (governor {told}): short timings run slower than long ones"
    return (Caution(code="frequency", text=text, hint="sudo cpupower frequency-set -g performance"),)


def thread_cautions(threads: int) -> tuple[Caution, ...]:
    """`threads` where there are more than CPUs, so that they wait for each other."""
    if threads <= (n := device.n_cpus()):
        return ()
    text = f"{threads} threads share {n} CPU(s) and wait for each other: timings are long and restless"
    return (Caution(code="threads", text=text, hint=f"use at most --threads {n}"),)


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


def own_cpu_s() -> float:
    """CPU time of this process and of its children, the ended ones too."""
    times = os.times()
    total = time.process_time() + times.children_user + times.children_system
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                used = child.cpu_times()
                total += used.user + used.system
                total += getattr(used, "children_user", 0.0) + getattr(used, "children_system", 0.0)
    return total


def _cpu_times() -> Sequence[psutil._ntuples.scputimes]:
    """Of each CPU that this process may use."""
    each = psutil.cpu_times(percpu=True)
    if not hasattr(os, "sched_getaffinity"):
        return each
    allowed = sorted(os.sched_getaffinity(0))
    return [each[i] for i in allowed] if allowed[-1] < len(each) else each


def _total(times: psutil._ntuples.scputimes) -> float:
    """All CPU time; Linux counts a guest's time in user time already."""
    return float(sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0))


def _unused(times: psutil._ntuples.scputimes) -> float:
    return float(times.idle + getattr(times, "iowait", 0.0))


def _steal(times: psutil._ntuples.scputimes) -> float:
    return float(getattr(times, "steal", 0.0))


def _cautions(told: dict[str, Load], setting: str) -> tuple[Caution, ...]:
    loads = list(told.values())
    reasons, remedies = [], []
    if any(load.is_crowded for load in loads):
        reasons.append(_crowd(told))
        remedies.append("stop other work")
    if any(load.is_stolen for load in loads):
        shares = _in_phases(told, lambda load: f"{load.steal or 0:.0%}")
        reasons.append(f"the hypervisor took away CPU time: {shares}")
        remedies.append("use a machine that is not shared")
    if stopped := max((load.stopped or 0 for load in loads if load.is_stopped), default=0):
        reasons.append(f"a CPU quota stopped this process in {stopped:.0%} of its periods")
        remedies.append("use fewer threads or raise the container's quota")
    if not reasons:
        return ()
    averages = [load.average[0] for load in loads if load.average]
    average = f", load average {max(averages):.1f}" if averages else ""
    text = f"{' and '.join(reasons)} ({setting}{average})"
    return (Caution(code="unstable", text=text, hint=f"{', '.join(remedies)}, then repeat"),)


def _crowd(told: dict[str, Load]) -> str:
    loads = list(told.values())
    n = max(load.n_cpus for load in loads)
    if all(load.others is None for load in loads):
        return f"more processes wanted to run than the {n} CPU(s) take"
    shares = _in_phases(told, lambda load: f"{(load.others or 0) * n:.1f}")
    return f"other processes took time of the {n} CPU(s): {shares}"


def _in_phases(told: dict[str, Load], value: Callable[[Load], str]) -> str:
    """`1.2 before, 1.0 during, 1.1 after`."""
    return ", ".join(f"{value(load)} {phase}" for phase, load in told.items())
