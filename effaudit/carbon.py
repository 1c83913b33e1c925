"""How many grams of CO2 equivalent a kilowatt-hour costs where the audit runs, from tables on disk."""

from __future__ import annotations

import json
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

from effaudit.errors import EffauditError
from effaudit.record import Caution

WORLD_G_PER_KWH = 475.0  # IEA 2019, the world average of codecarbon's tables
J_PER_KWH = 3.6e6
TABLE = "data/private_infra/global_energy_mix.json"  # Our World in Data, shipped with codecarbon


@dataclass(frozen=True)
class Intensity:
    """gCO2e per kWh and where the figure is from."""

    g_per_kwh: float
    origin: str
    cautions: tuple[Caution, ...] = ()


def find_intensity(country: str | None, g_per_kwh: float | None) -> Intensity | None:
    """The intensity given, else that of the country (ISO 3166-1 alpha-3, or `world`); None when neither is given.

    Raises EffauditError for a country without a figure.
    """
    if g_per_kwh is not None:
        return Intensity(g_per_kwh, "given")
    if country is None:
        return None
    if country.lower() == "world":
        text = f"world average of {WORLD_G_PER_KWH:g} gCO2e/kWh assumed: countries range from about 25 to 900"
        hint = "give --country ISO3 or --intensity"
        return Intensity(
            WORLD_G_PER_KWH, "world average, assumed", (Caution(code="world_average", text=text, hint=hint),)
        )
    table = _table()
    row = table.get(country.upper())
    if row is None:
        raise _unknown(country, table)
    return Intensity(float(row["carbon_intensity"]), f"{row['country_name']}, {row['year']}, codecarbon's table")


def grams(energy_j: float, intensity: Intensity, pue: float) -> float:
    """gCO2e of an energy, with the overhead of the building it is used in."""
    return energy_j / J_PER_KWH * intensity.g_per_kwh * pue


def _table() -> dict[str, dict[str, float | str | int]]:
    """Countries by ISO code that have an intensity.

    Raises EffauditError where codecarbon's table is missing.
    """
    spec = find_spec("codecarbon")  # found, not imported: that would take a second
    if spec is None or spec.origin is None:
        raise EffauditError("no table of carbon intensities: codecarbon is not installed", "give --intensity G_PER_KWH")
    try:
        text = (Path(spec.origin).parent / TABLE).read_text(encoding="utf-8")
    except OSError as error:
        raise EffauditError(f"no table of carbon intensities: {error}", "give --intensity G_PER_KWH") from error
    return {code: row for code, row in json.loads(text).items() if row.get("carbon_intensity") is not None}


def _unknown(country: str, table: dict[str, dict[str, float | str | int]]) -> EffauditError:
    close = get_close_matches(country.upper(), table, n=1, cutoff=0.5)
    meant = f"did you mean `{close[0]}` ({table[close[0]]['country_name']})? " if close else ""
    return EffauditError(
        f"no carbon intensity for country `{country}`",
        f"{meant}countries go by ISO 3166-1 alpha-3 codes such as DEU, or `world`; or give --intensity G_PER_KWH",
    )
