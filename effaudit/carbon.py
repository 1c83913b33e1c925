"""How many grams of CO2 equivalent a kilowatt-hour costs where the audit runs."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from effaudit import carbon_tables
from effaudit.errors import EffauditError, unknown_name
from effaudit.record import Caution

WORLD = "world"
WORLD_G_PER_KWH = 475.0  # IEA 2019, the world average of codecarbon's tables
J_PER_KWH = 3.6e6
GIVE = "or give --intensity G_PER_KWH"


@dataclass(frozen=True)
class Intensity:
    """gCO2e per kWh and where the figure is from."""

    g_per_kwh: float
    origin: str
    cautions: tuple[Caution, ...] = ()


def find_intensity(country: str | None, region: str | None, g_per_kwh: float | None) -> Intensity | None:
    """The intensity given, else that of the region or country, else None.

    `country` is an ISO 3166-1 alpha-3 code or `world`, `region` a state, province or bidding zone. Raises
    EffauditError for a place without a figure.
    """
    if g_per_kwh is not None:
        return Intensity(g_per_kwh, "given")
    if region is not None and (country is None or country.lower() == WORLD):
        raise EffauditError(f"region `{region}` without its country", "add --country ISO3")
    if country is None:
        return None
    if country.lower() == WORLD:
        text = f"world average of {WORLD_G_PER_KWH:g} gCO2e/kWh assumed: countries range from about 20 to 1300"
        caution = Caution(code="world_average", text=text, hint="give --country ISO3 or --intensity")
        return Intensity(WORLD_G_PER_KWH, "world average, IEA 2019, assumed", (caution,))
    place = _country(country.upper()) if region is None else _region(country.upper(), region)
    where = place.names[0] if region is None else f"{place.names[0]}, {country.upper()}"
    return Intensity(place.g_per_kwh, f"{where}, {place.source}, in codecarbon's tables")


def grams(energy_j: float, intensity: Intensity, pue: float) -> float:
    """gCO2e of an energy, with the overhead of the building it is used in."""
    return energy_j / J_PER_KWH * intensity.g_per_kwh * pue


def _country(code: str) -> carbon_tables.Place:
    table = carbon_tables.countries()
    if code in table:
        return table[code]
    close = get_close_matches(code, table, n=1, cutoff=0.5)
    meant = f"did you mean `{close[0]}` ({table[close[0]].names[0]})? " if close else ""
    raise EffauditError(
        f"no carbon intensity for country `{code}`",
        f"{meant}countries go by ISO 3166-1 alpha-3 codes such as DEU, or `{WORLD}`; {GIVE}",
    )


def _region(country: str, region: str) -> carbon_tables.Place:
    known = carbon_tables.regions(country)
    for place in known:
        if _plain(region) in map(_plain, place.names):
            return place
    if not known:
        listed = ", ".join(carbon_tables.with_regions())
        hint = f"leave the region out, {GIVE}; regions are known of {listed}"
        raise EffauditError(f"no regions of `{country}` are known", hint)
    raise unknown_name(f"regions of {country}", region, [place.names[0] for place in known])


def _plain(name: str) -> str:
    return " ".join(name.lower().replace("-", " ").replace("_", " ").split())
