import os
import sys

import pytest

from effaudit.against.cpus import QuietestCpu, busy_seconds

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="CPUs can be chosen on Linux alone")


class Machine:
    """CPU time by CPU, as a test sets it; `at` is the clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, n: int) -> None:
        self.busy, self.at = [100.0] * n, 50.0
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(n)))
        monkeypatch.setattr("time.monotonic", lambda: self.at)

    def spend(self, seconds: float, **by_cpu: float) -> None:
        self.at += seconds
        for name, used in by_cpu.items():
            self.busy[int(name[3:])] += used


def test_idle_cpus_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, 2)
    cpus = QuietestCpu(lambda: list(machine.busy))
    chosen = []
    for _ in range(4):
        chosen.append(cpus.choose())
        machine.spend(1.0, **{f"cpu{chosen[-1]}": 0.9})
        cpus.used(0.9)  # its own use does not speak against a CPU
    assert chosen == [0, 1, 0, 1]


def test_a_cpu_that_others_use_is_left_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, 3)
    cpus = QuietestCpu(lambda: list(machine.busy))
    machine.spend(1.0, cpu0=1.0, cpu1=0.02, cpu2=0.5)
    assert cpus.choose() == 1
    machine.spend(1.0, cpu0=0.1, cpu1=1.0, cpu2=0.9)
    cpus.used(0.2)
    assert cpus.choose() == 0


def test_one_cpu_is_no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    Machine(monkeypatch, 1)
    assert QuietestCpu(lambda: [0.0]).choose() is None


def test_every_cpu_is_read() -> None:
    assert len(busy_seconds()) == os.cpu_count()
