"""Energy counters of CPU packages and DRAM, as Linux shows them under /sys/class/powercap (RAPL)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from effaudit.meters._sources import Part, Source, Sources

ROOT = Path("/sys/class/powercap")
ZONE = re.compile(r"(intel-rapl|intel-rapl-mmio|amd-rapl|amd_energy)(:\d+)+$")
TICK_S = 0.001  # the counter is updated about each millisecond (Intel SDM vol. 3, RAPL interfaces)
MIRROR_UJ = 500_000  # mirrors may be updated a tick apart; unlike packages drift further apart within seconds
REMEDY = "sudo chmod a+r /sys/class/powercap/*/energy_uj, until the next boot"

Read = Callable[[Path], str]


@dataclass
class Counter:
    """One zone's energy in J, wrap-around taken out; read it more often than it wraps (minutes at full load)."""

    domain: str
    path: Path
    range_uj: int
    last_uj: int
    read_text: Read
    part: Part = "cpu"
    total_uj: int = 0
    method: str = "RAPL counter"
    is_modelled: bool = False
    tick_s: float = TICK_S

    def read(self) -> float:
        now = int(self.read_text(self.path))
        step = now - self.last_uj
        self.total_uj += step if step >= 0 else step + self.range_uj
        self.last_uj = now
        return self.total_uj / 1e6


@dataclass
class Alike:
    """Counters that started alike: one package shown on every die, as some processors do, or really several.

    As long as they stay together they count once; from the moment one drifts off, what each adds counts.
    """

    counters: list[Counter]
    part: Part = "cpu"
    is_modelled: bool = False
    tick_s: float = TICK_S
    _apart_from: list[float] = field(default_factory=list)  # J of each counter when one had drifted off

    @property
    def domain(self) -> str:
        return " = ".join(counter.domain for counter in self.counters)

    @property
    def method(self) -> str:
        return "RAPL counters, each for itself" if self._apart_from else "RAPL counters that go together, counted once"

    def read(self) -> float:
        first, *others = self.counters
        together = [_go_together(first, other) for other in others]
        joules = [counter.total_uj / 1e6 for counter in self.counters]
        if not all(together) and not self._apart_from:
            self._apart_from = joules
        if not self._apart_from:
            return joules[0]
        return self._apart_from[0] + sum(joules) - sum(self._apart_from)


def _go_together(first: Counter, other: Counter) -> bool:
    """Whether `other` is where `first` is: a mirror lies between two readings of what it mirrors."""
    first.read()
    before = first.last_uj
    other.read()
    first.read()
    passed = (first.last_uj - before) % first.range_uj
    return (other.last_uj - before + MIRROR_UJ) % first.range_uj <= passed + 2 * MIRROR_UJ


@dataclass(frozen=True)
class _Zone:
    folder: Path
    name: str
    package: str  # name of the package it lies in, its own for a package


def find_counters(root: Path | None = None, read_text: Read = Path.read_text) -> Sources:
    """Package counters and the DRAM counters beside them, each domain once.

    Cores and graphics lie inside their package, and psys holds everything, so they are never added; psys
    is taken only where there is no package.
    """
    root = ROOT if root is None else root
    try:
        zones = list(_zones(root, read_text))
        if not zones:
            return Sources(reason=f"no RAPL energy counters under {root} (usual in virtual machines and containers)")
        packages = [zone for zone in zones if zone.name.startswith("package")]
        chosen = packages or [zone for zone in zones if zone.name.startswith("psys")]
        drams = [zone for zone in zones if zone.name == "dram"]
        groups = _grouped([_open(zone, zone.name, "cpu", read_text) for zone in _once(chosen)])
        beside = [
            [_open(zone, f"dram of {zone.package}", "ram", read_text) for zone in _once(drams) if zone.package in names]
            for names in ({counter.domain for counter in group} for group in groups)
        ]
    except PermissionError:
        return Sources(reason="RAPL energy counters exist but only root may read them", hint=REMEDY)
    except (OSError, ValueError) as error:
        return Sources(reason=f"RAPL energy counters cannot be read: {error}")
    if not groups:
        return Sources(reason=f"no package among the RAPL zones: {', '.join(sorted({z.name for z in zones}))}")
    return Sources(found=tuple(map(_as_one, (*groups, *filter(None, beside)))))


def _zones(root: Path, read_text: Read) -> Iterable[_Zone]:
    """The zones that have a name.

    Raises PermissionError where a folder or a name may not be read.
    """
    try:
        names = sorted(os.listdir(root))
    except (FileNotFoundError, NotADirectoryError):
        return
    for folder in (root / name for name in names if ZONE.match(name)):
        try:
            name = read_text(folder / "name").strip()
            parent = folder.name.rpartition(":")[0]
            package = read_text(root / parent / "name").strip() if parent.count(":") else name
        except FileNotFoundError:
            continue
        yield _Zone(folder, name, package)


def _once(zones: Iterable[_Zone]) -> list[_Zone]:
    """One zone for each domain: MSR and MMIO may both show a package, from unlike starts."""
    first: dict[tuple[str, str], _Zone] = {}
    for zone in zones:
        first.setdefault((zone.package, zone.name), zone)
    return list(first.values())


def _open(zone: _Zone, domain: str, part: Part, read_text: Read) -> Counter:
    path = zone.folder / "energy_uj"
    range_uj = int(read_text(zone.folder / "max_energy_range_uj"))
    if range_uj <= 0:
        raise ValueError(f"{zone.folder.name} has a range of {range_uj} uJ")
    return Counter(domain, path, range_uj, int(read_text(path)), read_text, part)


def _grouped(counters: list[Counter]) -> list[list[Counter]]:
    """Those that go together in one group."""
    groups: list[list[Counter]] = []
    for counter in counters:
        home = next((group for group in groups if _go_together(group[0], counter)), None)
        if home is None:
            groups.append([counter])
        else:
            home.append(counter)
    return groups


def _as_one(group: list[Counter]) -> Source:
    return group[0] if len(group) == 1 else Alike(group, group[0].part)
