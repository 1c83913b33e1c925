"""What the tables of a report are made of: cells of text that know what their column sorts them by."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from effaudit import units
from effaudit.record import Source

MARKS: dict[Source, str] = {"counted": "c", "measured": "m", "modelled": "~", "unavailable": "–"}
MARKS_LEGEND = "c counted, m measured, ~ modelled, – unavailable"
NOTHING = "–"


@dataclass(frozen=True)
class Cell:
    """A text; `order` is the number that it shows, if it shows one."""

    text: str
    order: float | None = None


@dataclass(frozen=True)
class Table:
    """A captioned table; the first column is the row's heading."""

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def numeric(self) -> tuple[bool, ...]:
        """By column, whether it holds figures."""
        return tuple(any(row[i].order is not None for row in self.rows) for i in range(len(self.heads)))


def number(value: int | float | None) -> float | None:
    """`value` as a float that can be drawn and sorted; None where there is none or it is beyond all bounds."""
    try:
        found = None if value is None else float(value)
    except OverflowError:
        return None
    return found if found is not None and isfinite(found) and abs(found) < 1e30 else None


def text(value: str) -> Cell:
    return Cell(value)


def quantity(value: int | float | None, unit: str = "1", mark: str = "") -> Cell:
    """A figure in its unit, with its provenance mark."""
    if value is None:
        return Cell(NOTHING)
    return Cell(f"{units.quantity(value, unit)} {mark}".rstrip(), number(value))


def percent(share: float | None) -> Cell:
    return Cell(NOTHING) if share is None else Cell(units.percent(share), number(share))


def change(value: float | None, mark: str = "") -> Cell:
    """A relative change with its sign."""
    return Cell(NOTHING) if value is None else Cell(f"{units.signed_percent(value)} {mark}".rstrip(), number(value))


def count(value: int) -> Cell:
    return Cell(str(value), number(value))


def interval(ends: tuple[float, float] | None) -> Cell:
    """An interval of relative changes, in percent; sorted by its middle."""
    return Cell("") if ends is None else Cell(units.interval(*ends), number(sum(ends) / 2))
