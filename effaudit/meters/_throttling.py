"""How often a CPU quota stopped this process, as the control groups of Linux count it (containers have such quotas)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


@dataclass(frozen=True)
class Periods:
    """Quota periods (100 ms each unless set otherwise) of one control group, and those in which it was stopped."""

    n_all: int
    n_stopped: int


def read_periods() -> dict[Path, Periods]:
    """The periods of every control group with a CPU quota that this process is in; empty where there is none."""
    found = {}
    for folder in _folders():
        try:
            lines = (folder / "cpu.stat").read_text().splitlines()
        except OSError:
            continue
        fields = dict(line.split(maxsplit=1) for line in lines if len(line.split()) == 2)
        if "nr_throttled" in fields and "nr_periods" in fields:
            found[folder] = Periods(int(fields["nr_periods"]), int(fields["nr_throttled"]))
    return found


def stopped_share(before: dict[Path, Periods], after: dict[Path, Periods]) -> float | None:
    """Share of the periods between two readings in which the worst group was stopped; None without a quota."""
    shares = []
    for folder, then in before.items():
        if (now := after.get(folder)) is None or now.n_all <= then.n_all:
            continue
        shares.append((now.n_stopped - then.n_stopped) / (now.n_all - then.n_all))
    return max(shares, default=None)


def _folders() -> Iterator[Path]:
    """The process's own groups with their parents, version 2 and 1, then the roots that a container sees as its own."""
    try:
        lines = MEMBERSHIP.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        for root in (CGROUPS / "cpu", CGROUPS / "cpu,cpuacct") if controllers else (CGROUPS, CGROUPS / "unified"):
            inner = root / path.lstrip("/")
            yield inner
            yield from (parent for parent in inner.parents if parent.is_relative_to(root))
