"""What codecarbon's tables on disk say of the carbon intensity of countries and their regions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from effaudit.errors import EffauditError

FOLDER = "data/private_infra"  # in the package; which years and regions lie in it differs between versions
G_PER_KWH_OF_LB_PER_MWH = 0.45359237
NORDIC = {"SWE": "SE", "NOR": "NO", "FIN": "FI"}  # what their bidding zones begin with
SOURCES = {"naturalGas": "natural_gas", "hydro": "hydroelectricity", "tidal": "hydroelectricity"}  # spelt otherwise


@dataclass(frozen=True)
class Place:
    """The names that it goes by, the first of which is shown, gCO2e per kWh, and the year and source of that."""

    names: tuple[str, ...]
    g_per_kwh: float
    source: str


def countries() -> dict[str, Place]:
    """Countries that have an intensity, by ISO 3166-1 alpha-3 code.

    Raises EffauditError where codecarbon's table is missing.
    """
    rows = _read(_folder() / "global_energy_mix.json").items()
    return {
        code: Place((row["country_name"],), float(row["carbon_intensity"]), f"{row['year']}, Our World in Data")
        for code, row in rows
        if row.get("carbon_intensity")  # 0 is a gap or rounded: even water power has some 20
    }


def regions(country: str) -> list[Place]:
    """States, provinces or bidding zones of a country, by its ISO code; empty where none are known."""
    read = _READERS.get(country)
    return list(read(country)) if read is not None else []


def with_regions() -> list[str]:
    """The countries of which regions are known."""
    return [country for country in _READERS if regions(country)]


def _usa(country: str) -> Iterator[Place]:
    for path in _newest("usa_emissions.json"):
        table = _read(path)
        source = table.get("_source", {})
        told = f"{source.get('year', path.parent.name)}, {source.get('name', 'EPA eGRID')}"
        for name, row in table.items():
            if not name.startswith("_") and "emissions" in row:
                names = (name, *filter(None, [row.get("regionCode")]))
                yield Place(names, float(row["emissions"]) * G_PER_KWH_OF_LB_PER_MWH, told)


def _canada(country: str) -> Iterator[Place]:
    """Shares of the sources times the intensity of each; sources without one are left out."""
    for path in _newest("canada_energy_mix.json"):
        per_source = _read(_folder() / "carbon_intensity_per_source.json")
        for name, mix in _read(path).items():
            known = {kind: per_source.get(SOURCES.get(kind, kind)) for kind in mix}
            weighed = [(float(mix[kind]), float(g)) for kind, g in known.items() if isinstance(g, int | float)]
            whole = sum(share for share, _ in weighed)
            if whole > 0:
                mean = sum(share * g for share, g in weighed) / whole
                yield Place((name,), mean, f"{path.parent.name}, its mix of sources")


def _china(country: str) -> Iterator[Place]:
    for path in _newest("china_provincial_emissions.json"):
        for code, row in _read(path)["data"].items():
            names = (*row["names"], code, code.removeprefix("CN-"))
            yield Place(names, float(row["emission_factor"]), f"{row['year']}, provincial factors")


def _nordic(country: str) -> Iterator[Place]:
    for path in _newest("nordic_emissions.json"):
        for code, row in _read(path)["data"].items():
            if code.startswith(NORDIC[country]):
                yield Place((code,), float(row["emission_factor"]), f"{row.get('year', 'undated')}, bidding zone")


_READERS: Mapping[str, Callable[[str], Iterator[Place]]] = {
    "USA": _usa,
    "CAN": _canada,
    "CHN": _china,
    **dict.fromkeys(NORDIC, _nordic),
}


def _folder() -> Path:
    spec = find_spec("codecarbon")  # found, not imported: that would take a second
    if spec is None or spec.origin is None:
        raise EffauditError("no table of carbon intensities: codecarbon is not installed", "give --intensity G_PER_KWH")
    return Path(spec.origin).parent / FOLDER


def _newest(name: str) -> list[Path]:
    """The table of that name in the folder of the latest year; none where this version of codecarbon has none."""
    return sorted(_folder().rglob(name))[-1:]


def _read(path: Path) -> dict[str, Any]:
    try:
        table: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise EffauditError(f"no table of carbon intensities: {error}", "give --intensity G_PER_KWH") from error
    return table
