import pytest
from hypothesis import given
from hypothesis import strategies as st

from effaudit import units


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (45.6e9, "FLOP", "45.6 GFLOP"),
        (50_000_000_000, "FLOP", "50.0 GFLOP"),
        (0.0123, "s", "12.3 ms"),
        (4.5e-7, "s", "450 ns"),
        (1234, "s", "1230 s"),
        (1_234_567, "1", "1.23 M"),
        (0.000123, "1", "0.000123"),
        (999.96, "B", "1.00 kB"),
        (999_999, "B", "1.00 MB"),
        (0, "J", "0 J"),
        (0.0, "1", "0"),
        (-5e3, "W", "-5.00 kW"),
        (2.5, "layer", "2.50 layer"),
        (1e-7, "g", "100 ng"),
        (10**400, "FLOP", "1e+382 EFLOP"),
        (1500.0, "1/s", "1.50 k/s"),
    ],
)
def test_quantity(value: float, unit: str, shown: str) -> None:
    assert units.quantity(value, unit) == shown


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        (-0.274, "-27.4 %"),
        (0.04, "+4.0 %"),
        (-0.0001, "0.0 %"),
        (0.0, "0.0 %"),
        (-1.0, "-100 %"),
        (0.9999, "+100 %"),
        (1.5, "+150 %"),
        (11.3, "x12.3"),
        (1e300, "x1e+300"),
    ],
)
def test_signed_percent(change: float, shown: str) -> None:
    assert units.signed_percent(change) == shown


def test_points_and_intervals_have_no_negative_zero() -> None:
    assert units.points(-0.003) == "-0.3 points"
    assert units.points(-0.00001) == "0.0 points"
    assert units.interval(-0.0001, 0.06) == "[0.0, 6.0]"
    assert units.percent(-0.00001) == "0.0 %"


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), (" 5 % ", 0.05), ("0.05", 0.05), ("0", 0.0), ("150%", 1.5)])
def test_a_share_is_read_with_and_without_a_percent_sign(text: str, share: float) -> None:
    assert units.parse_share(text) == share


@pytest.mark.parametrize("text", ["", "%", "much", "-1%", "nan", "inf", "5%%"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"share|float"):
        units.parse_share(text)


@given(st.floats(-1, 1e300, allow_nan=False))
def test_signed_percent_fits_a_table_cell(change: float) -> None:
    assert len(units.signed_percent(change)) <= 8


@given(st.one_of(st.floats(1e-12, 1e20), st.integers(1, 10**30)), st.sampled_from(["FLOP", "s", "B", "J", "g", "1"]))
def test_quantity_keeps_three_digits(value: float, unit: str) -> None:
    """What is printed, read back, is the value within half of the third digit."""
    scale = {"n": -9, "µ": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
    figure, _, rest = units.quantity(value, unit).partition(" ")
    prefix = rest if unit == "1" else rest.removesuffix(unit)
    assert float(figure) * 10.0 ** scale.get(prefix, 0) == pytest.approx(float(value), rel=5.1e-3)
