"""Carbon intensities by country and region, as given, as assumed, and refused."""

import json
from types import SimpleNamespace

import pytest

from effaudit import carbon, carbon_tables
from effaudit.errors import EffauditError
from effaudit.profile_spec import AuditSpec


def test_nothing_is_assumed():
    assert carbon.find_intensity(None, None, None) is None


def test_a_country_is_found_in_any_case_with_its_year():
    found = carbon.find_intensity("fra", None, None)
    assert found == carbon.find_intensity("FRA", None, None)
    assert 20 < found.g_per_kwh < 120  # nuclear and hydro
    assert found.origin.startswith("France, 20")
    assert "Our World in Data" in found.origin
    assert found.g_per_kwh < carbon.find_intensity("POL", None, None).g_per_kwh


def test_a_country_at_nothing_has_no_figure(monkeypatch, tmp_path):
    row = {"country_name": "Nowhere", "carbon_intensity": 0.0, "year": 2022}
    known = {**row, "country_name": "Somewhere", "carbon_intensity": 20.0}
    tables(monkeypatch, tmp_path, {"global_energy_mix.json": {"NOW": row, "SOM": known}})
    assert carbon.find_intensity("SOM", None, None).g_per_kwh == 20
    with pytest.raises(EffauditError, match="no carbon intensity for country `NOW`"):
        carbon.find_intensity("NOW", None, None)


@pytest.mark.parametrize("region", ["california", "California", "CA", "ca"])
def test_a_state_is_found_by_name_or_code(region):
    found = carbon.find_intensity("USA", region, None)
    assert 100 < found.g_per_kwh < 300  # EPA: 395 lb/MWh are 179 g/kWh
    assert found.origin.startswith("california, USA, 20")
    assert found.g_per_kwh != carbon.find_intensity("USA", None, None).g_per_kwh


def test_names_of_several_words_may_be_joined():
    plain = carbon.find_intensity("USA", "new york", None)
    assert plain == carbon.find_intensity("USA", "New-York", None) == carbon.find_intensity("USA", "new_york", None)


def tables(monkeypatch, tmp_path, files):
    """codecarbon with these files in its folder of tables."""
    for name, content in files.items():
        path = tmp_path / "codecarbon" / carbon_tables.FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    spec = SimpleNamespace(origin=str(tmp_path / "codecarbon" / "__init__.py"))
    monkeypatch.setattr(carbon_tables, "find_spec", lambda _: spec)


USA = {"_unit": {"emissions": "lbs/MWh"}, "texas": {"emissions": 1000.0, "regionCode": "TX"}}


def test_pounds_a_megawatt_hour_become_grams_a_kilowatt_hour(monkeypatch, tmp_path):
    newer = {**USA, "texas": {"emissions": 800.0, "regionCode": "TX"}}
    tables(monkeypatch, tmp_path, {"2016/usa_emissions.json": USA, "2023/usa_emissions.json": newer})
    found = carbon.find_intensity("USA", "TX", None)
    assert found.g_per_kwh == pytest.approx(800 * 453.59237 / 1000)
    assert found.origin.startswith("texas, USA, 2023")  # the newest table, its folder's year


def test_a_mix_of_sources_is_weighed(monkeypatch, tmp_path):
    mix = {"hydro": 50.0, "naturalGas": 25.0, "other": 5.0, "total": 80.0, "tidal": 0.0}
    per_source = {"hydroelectricity": 26, "natural_gas": 743, "unit": "g/kWh"}
    files = {"2016/canada_energy_mix.json": {"quebec": mix}, "carbon_intensity_per_source.json": per_source}
    tables(monkeypatch, tmp_path, files)
    found = carbon.find_intensity("CAN", "Quebec", None)
    assert found.g_per_kwh == pytest.approx((50 * 26 + 25 * 743) / 75)
    assert found.origin.startswith("quebec, CAN, 2016")


def test_provinces_and_zones_go_by_names_and_codes(monkeypatch, tmp_path):
    china = {"data": {"CN-BJ": {"emission_factor": 555.4, "year": 2023, "names": ["beijing"]}}}
    zones = {"SE1": {"emission_factor": 25.9, "year": 2025}, "NO1": {"emission_factor": 26.0, "year": 2025}}
    files = {"2023/china_provincial_emissions.json": china, "nordic_emissions.json": {"data": zones}}
    tables(monkeypatch, tmp_path, files)
    assert carbon.find_intensity("CHN", "Beijing", None).g_per_kwh == 555.4
    assert carbon.find_intensity("CHN", "BJ", None).origin.startswith("beijing, CHN, 2023")
    assert carbon.find_intensity("SWE", "se1", None).origin.startswith("SE1, SWE, 2025")
    with pytest.raises(EffauditError, match="no `NO1` among the regions of SWE"):
        carbon.find_intensity("SWE", "NO1", None)
    assert carbon_tables.with_regions() == ["CHN", "SWE", "NOR"]


@pytest.mark.parametrize("name", ["world", "World"])
def test_world_average_is_flagged(name):
    found = carbon.find_intensity(AuditSpec(country=name).country, None, None)
    assert found.g_per_kwh == 475
    assert "IEA 2019" in found.origin
    assert [caution.code for caution in found.cautions] == ["world_average"]


def test_a_given_intensity_wins():
    assert carbon.find_intensity("FRA", None, 12.5).g_per_kwh == 12.5


@pytest.mark.parametrize(
    ("country", "region", "message", "hint"),
    [
        ("FRX", None, "no carbon intensity for country `FRX`", "did you mean `FR"),
        ("USA", "califronia", "no `califronia` among the regions of USA", "did you mean `california`?"),
        ("FRA", "bretagne", "no regions of `FRA` are known", "regions are known of USA"),
        (None, "california", "region `california` without its country", "--country"),
        ("world", "california", "region `california` without its country", "--country"),
    ],
)
def test_an_unknown_place_is_refused(country, region, message, hint):
    with pytest.raises(EffauditError) as caught:
        carbon.find_intensity(country, region, None)
    assert caught.value.message == message
    assert hint in caught.value.hint


@pytest.mark.parametrize("is_installed", [False, True])
def test_without_tables_the_way_out_is_said(monkeypatch, tmp_path, is_installed):
    spec = SimpleNamespace(origin=str(tmp_path / "codecarbon" / "__init__.py")) if is_installed else None
    monkeypatch.setattr(carbon_tables, "find_spec", lambda _: spec)
    with pytest.raises(EffauditError, match="no table of carbon intensities") as caught:
        carbon.find_intensity("FRA", None, None)
    assert "--intensity" in caught.value.hint


def test_one_kilowatt_hour():
    intensity = carbon.Intensity(100.0, "given")
    assert carbon.grams(3.6e6, intensity, 1.5) == pytest.approx(150.0)
