"""What quality costs: against executed FLOPs and against time, with the models that none other beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from effaudit.comparison import is_machine_bound, workload_difference
from effaudit.record import AuditRecord, Measurement
from effaudit.renderers._cells import MARKS, Cell, Table, number, quantity, text
from effaudit.renderers._layout import shorten
from effaudit.renderers._topics import _style
from effaudit.renderers._topics._drawing import Drawing
from effaudit.renderers._words import main_quality, quality_name, quality_shown, quality_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# File name, title, measurement, axis label, what the axis divides by.
COSTS = (
    ("quality-flops", "Quality against executed FLOPs", "flops.executed", "executed GFLOP in one pass", 1e9),
    ("quality-time", "Quality against time", "latency.p50", "median milliseconds a batch", 1e-3),
)


@dataclass(frozen=True)
class Point:
    """One model; `is_on_front`: no other model is at least as good and as cheap, and better in one of the two."""

    record: AuditRecord
    quality: Measurement
    cost: Measurement
    is_on_front: bool = False

    @property
    def x(self) -> float:
        return _known(self.cost)

    @property
    def y(self) -> float:
        return quality_value(self.record, self.quality)


def drawings(records: Sequence[AuditRecord]) -> list[Drawing]:
    """One a cost that two models or more have in common."""
    found = []
    for name, title, measurement, label, scale in COSTS:
        points = pareto(records, measurement)
        if len(points) > 1:
            found.append(_drawing(name, title, label, scale, points, records))
    return found


def pareto(records: Sequence[AuditRecord], measurement: str) -> tuple[Point, ...]:
    """The models whose quality and cost compare with those of the first that has both."""
    points = [
        Point(record, quality, cost)
        for record in records
        if (quality := main_quality(record)) is not None
        and (cost := record.get(measurement)) is not None
        and number(quality.value) is not None
        and number(cost.value) is not None
    ]
    alike = [point for point in points if _compares(points[0], point)]
    return tuple(replace(point, is_on_front=not any(_beats(other, point) for other in alike)) for point in alike)


def _compares(first: Point, other: Point) -> bool:
    is_here = first.record.environment.fingerprint == other.record.environment.fingerprint
    return (
        first.quality.name == other.quality.name
        and not workload_difference(first.record, other.record)
        and (is_here or not is_machine_bound(first.cost))
    )


def _beats(other: Point, this: Point) -> bool:
    gain = (other.y - this.y) * (1 if this.quality.better == "higher" else -1)
    saving = this.x - other.x
    return gain >= 0 and saving >= 0 and (gain > 0 or saving > 0)


def _drawing(
    name: str, title: str, label: str, scale: float, points: Sequence[Point], records: Sequence[AuditRecord]
) -> Drawing:
    first = points[0].quality
    quality = f"{quality_name(first)} ({'higher' if first.better == 'higher' else 'lower'} is better)"

    def plot(axes: Sequence[Axes]) -> None:
        ax = axes[0]
        front = sorted((p for p in points if p.is_on_front), key=lambda p: p.x)
        ax.plot([p.x / scale for p in front], [p.y for p in front], ":", color=_style.INK, linewidth=1, zorder=1)
        for p in points:
            look = _style.look(p.record, records)
            face = look.colour if p.is_on_front else "none"
            name = shorten(p.record.model.name, _style.NAME_WIDTH)
            ax.plot(p.x / scale, p.y, look.marker, color=look.colour, markerfacecolor=face, markersize=9, label=name)
        ax.margins(0.12)
        ax.set_xlabel(label)
        ax.set_ylabel(quality)
        ax.grid()
        ax.legend(ncols=min(3, len(points)), loc="lower center", bbox_to_anchor=(0.5, 1.0), columnspacing=1.0)

    best = ", ".join(p.record.model.name for p in points if p.is_on_front)
    alt = f"One point a model: {quality} against {label}. Filled and joined are those that none other beats: {best}"
    return Drawing(name, title, alt, _table(title, points), plot)


def _table(title: str, points: Sequence[Point]) -> Table:
    lines = tuple(
        (
            text(p.record.model.name),
            quantity(p.cost.value, p.cost.unit, MARKS[p.cost.source]),
            Cell(f"{quality_shown(p.quality.name, p.y)} {MARKS[p.quality.source]}", p.y),
            text("yes" if p.is_on_front else "no"),
        )
        for p in points
    )
    return Table(title, ("model", points[0].cost.name, quality_name(points[0].quality), "on the front"), lines)


def _known(measurement: Measurement) -> float:
    value = number(measurement.value)
    assert value is not None
    return value
