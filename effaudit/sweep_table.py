"""The grid of a sweep: what each cell costs, which is best, and whether that is sure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from effaudit import stats
from effaudit.record import AuditRecord, Measurement

# What decides which cell is best, the first that all cells have: work done a second, then work to do.
DECIDING = ("throughput.examples", "flops.executed")


@dataclass(frozen=True)
class Place:
    """One combination; `ratio` is its deciding figure over that of the first cell."""

    record: AuditRecord
    values: tuple[Any, ...]  # in the order of the axes
    ratio: float | None
    is_best: bool


@dataclass(frozen=True)
class Grid:
    """All cells of one swept model; `deciding` names the figure by which one is best, None where cells lack it.

    `rivals` are cells whose interval of that figure overlaps the best one's.
    """

    model: str
    axes: tuple[str, ...]
    cells: tuple[Place, ...]
    deciding: str | None
    rivals: tuple[Place, ...]

    @property
    def best(self) -> Place | None:
        return next((cell for cell in self.cells if cell.is_best), None)


def grids(records: Sequence[AuditRecord]) -> tuple[Grid, ...]:
    """The grids among the records, in order; records that no sweep made are left out."""
    swept: dict[str, list[AuditRecord]] = {}
    for record in records:
        if record.model.swept is not None:
            swept.setdefault(record.model.swept, []).append(record)
    return tuple(_grid(name, members) for name, members in swept.items())


def _grid(name: str, records: Sequence[AuditRecord]) -> Grid:
    axes = tuple(dict.fromkeys(key for record in records for key in record.model.cell))
    deciding = next((f for f in DECIDING if all(r.value(f) is not None for r in records)), None)
    figures = [] if deciding is None else [record[deciding] for record in records]
    best = _best(figures)
    first = _number(figures[0]) if figures else 0
    cells = tuple(
        Place(
            record=record,
            values=tuple(record.model.cell.get(axis) for axis in axes),
            ratio=_number(figures[i]) / first if figures and first else None,
            is_best=i == best,
        )
        for i, record in enumerate(records)
    )
    rivals = [
        cell for i, cell in enumerate(cells) if best is not None and i != best and _overlap(figures[i], figures[best])
    ]
    return Grid(name, axes, cells, deciding, tuple(rivals))


def _best(figures: Sequence[Measurement]) -> int | None:
    if not figures:
        return None
    sign = 1 if figures[0].better == "higher" else -1
    return max(range(len(figures)), key=lambda i: sign * _number(figures[i]))


def _overlap(one: Measurement, other: Measurement) -> bool:
    """Whether the figures cannot be told apart: equal, or measured with intervals that meet."""
    if one.value == other.value:
        return True
    spans = [stats.median_interval(m.samples) for m in (one, other)]
    if spans[0] is None or spans[1] is None:
        return one.source == "measured"  # too few samples to be sure of a difference
    return spans[0].low <= spans[1].high and spans[1].low <= spans[0].high


def _number(measurement: Measurement) -> float:
    assert measurement.value is not None
    return float(measurement.value)
