"""Carbon intensities by country, as given, as assumed, and refused."""

import pytest

from effaudit import carbon
from effaudit.errors import EffauditError


def test_nothing_is_assumed():
    assert carbon.find_intensity(None, None) is None


def test_a_country_is_found_in_any_case_with_its_year():
    found = carbon.find_intensity("fra", None)
    assert found == carbon.find_intensity("FRA", None)
    assert 20 < found.g_per_kwh < 120  # nuclear and hydro
    assert found.origin.startswith("France, 20")
    assert found.g_per_kwh < carbon.find_intensity("POL", None).g_per_kwh


def test_world_average_is_flagged():
    found = carbon.find_intensity("world", None)
    assert found.g_per_kwh == 475
    assert [caution.code for caution in found.cautions] == ["world_average"]


def test_a_given_intensity_wins():
    assert carbon.find_intensity("FRA", 12.5).g_per_kwh == 12.5


def test_an_unknown_country_is_refused():
    with pytest.raises(EffauditError, match="no carbon intensity for country `FRX`") as caught:
        carbon.find_intensity("FRX", None)
    assert "did you mean `FR" in caught.value.hint


def test_one_kilowatt_hour():
    intensity = carbon.Intensity(100.0, "given")
    assert carbon.grams(3.6e6, intensity, 1.5) == pytest.approx(150.0)
