"""Energy counters of CPU packages and DRAM, as Linux shows them under /sys/class/powercap (RAPL)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from effaudit.meters._sources import Sources

ROOT = Path("/sys/class/powercap")
ZONE = re.compile(r"(intel-rapl|intel-rapl-mmio|amd-rapl|amd_energy)(:\d+)+$")
TICK_S = 0.001  # the counter is updated about each millisecond (Intel SDM vol. 3, RAPL interfaces)
MIRROR_UJ = 500_000  # counters of unlike packages are never this close; mirrors differ by what flows between two reads
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


@dataclass(frozen=True)
class _Zone:
    folder: Path
    name: str
    package: str  # name of the package it lies in, its own for a package


def find_counters(root: Path = ROOT, read_text: Read = Path.read_text) -> Sources:
    """Package counters and the DRAM counters beside them, each domain once.

    Cores and graphics lie inside their package, and psys holds everything, so they are never added; psys
    is taken only where there is no package.
    """
    zones = list(_zones(root, read_text))
    if not zones:
        return Sources(reason=f"no RAPL energy counters under {root} (usual in virtual machines and containers)")
    packages = [zone for zone in zones if zone.name.startswith("package")]
    chosen = packages or [zone for zone in zones if zone.name.startswith("psys")]
    dram = [zone for zone in zones if zone.name == "dram"]
    try:
        mains = _without_mirrors([_open(zone, zone.name, read_text) for zone in _once(chosen)])
        kept = {counter.domain for counter in mains}
        beside = [zone for zone in _once(dram) if zone.package in kept]
        drams = [_open(zone, f"dram of {zone.package}", read_text) for zone in beside]
    except PermissionError:
        return Sources(reason="RAPL energy counters exist but only root may read them", hint=REMEDY)
    except (OSError, ValueError) as error:
        return Sources(reason=f"RAPL energy counters cannot be read: {error}")
    if not mains:
        return Sources(reason=f"no package among the RAPL zones: {', '.join(sorted({z.name for z in zones}))}")
    return Sources(found=(*mains, *drams))


def _zones(root: Path, read_text: Read) -> Iterable[_Zone]:
    """The zones that have a name."""
    folders = sorted(path for path in root.glob("*") if ZONE.match(path.name))
    for folder in folders:
        try:
            name = read_text(folder / "name").strip()
            parent = folder.name.rpartition(":")[0]
            package = read_text(root / parent / "name").strip() if parent.count(":") else name
        except OSError:
            continue
        yield _Zone(folder, name, package)


def _once(zones: Iterable[_Zone]) -> list[_Zone]:
    """One zone for each domain: MSR and MMIO may both show a package, from unlike starts."""
    first: dict[tuple[str, str], _Zone] = {}
    for zone in zones:
        first.setdefault((zone.package, zone.name), zone)
    return list(first.values())


def _open(zone: _Zone, domain: str, read_text: Read) -> Counter:
    path = zone.folder / "energy_uj"
    range_uj = int(read_text(zone.folder / "max_energy_range_uj"))
    return Counter(domain, path, range_uj, int(read_text(path)), read_text)


def _without_mirrors(counters: list[Counter]) -> list[Counter]:
    """Some multi-die processors show one package's counter on every die; it counts once."""
    kept: list[Counter] = []
    for counter in counters:
        if all(abs(counter.last_uj - other.last_uj) > MIRROR_UJ for other in kept):
            kept.append(counter)
    return kept
