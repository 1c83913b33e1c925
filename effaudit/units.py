"""How a number of SI base units is written for people: prefixes, significant digits, signed percentages."""

from __future__ import annotations

from decimal import Decimal

_PREFIXES = {-9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}

# Smallest and largest prefix that is in use for a unit; units not listed take none.
_RANGES = {
    "FLOP": (0, 18),
    "FLOP/s": (0, 18),
    "MAC": (0, 18),
    "B": (0, 15),
    "s": (-9, 0),
    "J": (-6, 6),
    "g": (-9, 6),
    "W": (-3, 6),
    "1/s": (0, 12),
    "1": (0, 12),
}

_PLAIN_LIMIT = 10  # changes of tenfold and more read better as a factor than as a percentage
_READABLE_LIMIT = 1e5  # beyond that only the order of magnitude says something


def quantity(value: int | float, unit: str, digits: int = 3) -> str:
    """`value` in SI base units with a fitting prefix, as `45.6 GFLOP`, `1.23 M` (unit 1), `1.50 k/s`."""
    if value == 0:
        return "0" if unit == "1" else f"0 {unit}"
    mantissa, exponent = _rounded(value, digits)
    lowest, highest = _RANGES.get(unit, (0, 0))
    group = max(lowest, min(highest, 3 * (exponent // 3)))
    prefix = _PREFIXES[group]
    shown = _plain(mantissa, exponent - group, digits)
    suffix = prefix + unit.removeprefix("1")  # `1` and `1/s` are written as nothing and `/s`
    return f"{shown} {suffix}".rstrip()


def number(value: int | float, digits: int = 3) -> str:
    """`value` to `digits` significant digits, integers below a million in full."""
    if isinstance(value, int) and abs(value) < 1_000_000:
        return str(value)
    return _plain(*_rounded(value, digits), digits)


def percent(fraction: float, digits: int = 1) -> str:
    """A share, as `91.2 %`."""
    return _fixed(100 * fraction, digits) + " %"


def parse_share(text: str) -> float:
    """What `percent` writes, and plain numbers: `5%`, `5 %` and `0.05` are 0.05.

    Raises ValueError for anything else and for what is no share from 0 on.
    """
    value = float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    if not 0 <= value < float("inf"):
        raise ValueError(f"`{text}` is not a share from 0 on")
    return value


def signed_percent(change: float, digits: int = 1) -> str:
    """A relative change (ratio - 1), as `-27.4 %` or `+4.0 %`; from tenfold on the factor, as `x12.3`.

    No decimals from 100 % on, and a change that rounds to nothing has no sign.
    """
    if abs(change) >= _PLAIN_LIMIT:
        return f"x{number(1.0 + change, 3 if abs(change) < _READABLE_LIMIT else 1)}"
    decimals = digits if round(abs(100 * change), digits) < 100 else 0
    return f"{_signed(100 * change, decimals)} %"


def points(difference: float, digits: int = 1) -> str:
    """A difference of two shares in percentage points, as `-0.3 points`."""
    return f"{_signed(100 * difference, digits)} points"


def interval(low: float, high: float, digits: int = 1) -> str:
    """An interval of relative changes in percent, as `[2.1, 6.0]`."""
    return f"[{_fixed(100 * low, digits)}, {_fixed(100 * high, digits)}]"


def _signed(value: float, digits: int) -> str:
    text = _fixed(value, digits)
    return f"+{text}" if value > 0 and float(text) != 0 else text


def _fixed(value: float, digits: int) -> str:
    """`value` with a fixed number of decimals where it has a sensible size, and without a negative zero."""
    if abs(value) >= _READABLE_LIMIT:
        return number(value)
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def _rounded(value: int | float, digits: int) -> tuple[Decimal, int]:
    """`value` as mantissa in [1, 10) and decimal exponent, rounded first so that 999.9 becomes 1.00e3."""
    mantissa, _, exponent = f"{Decimal(value):.{digits - 1}e}".partition("e")
    return Decimal(mantissa), int(exponent) if Decimal(mantissa) else 0


def _plain(mantissa: Decimal, exponent: int, digits: int) -> str:
    """mantissa x 10^exponent without an exponent where that is readable."""
    if not -5 <= exponent <= 5:
        return f"{mantissa.normalize()}e{exponent:+d}"
    scaled = mantissa.scaleb(exponent)
    return f"{scaled:.{max(0, digits - 1 - exponent)}f}"
