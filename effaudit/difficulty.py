"""Whether a model spends more on harder examples: the per-example table, grouped by difficulty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from effaudit import units
from effaudit.record import ExampleRow

MAX_LEVELS = 10  # with more distinct difficulties than this, quartiles are shown instead of levels
_N_BINS = 4


@dataclass(frozen=True)
class DifficultyRow:
    """Means over the examples of one level or bin; None where a column does not apply."""

    level: str
    n_examples: int
    accuracy: float | None
    loss: float | None
    head_fraction: float | None
    alpha_hard: float | None
    exit_layer: float | None
    flops_routed: float | None  # per example


def by_difficulty(rows: Sequence[ExampleRow]) -> tuple[DifficultyRow, ...]:
    """From the easiest to the hardest; examples without a difficulty are left out."""
    groups = _levels(sorted((row for row in rows if row.difficulty is not None), key=_difficulty))
    return tuple(_summary(level, group) for level, group in groups)


def _levels(rows: Sequence[ExampleRow]) -> list[tuple[str, list[ExampleRow]]]:
    levels: dict[float, list[ExampleRow]] = {}
    for row in rows:
        levels.setdefault(_difficulty(row), []).append(row)
    if len(levels) <= MAX_LEVELS:
        return [(_shown(level), group) for level, group in levels.items()]
    bounds = [round(i * len(rows) / _N_BINS) for i in range(_N_BINS + 1)]
    bins = [list(rows[a:b]) for a, b in pairwise(bounds)]
    return [(f"{_shown(_difficulty(b[0]))} to {_shown(_difficulty(b[-1]))}", b) for b in bins if b]


def _summary(level: str, rows: Sequence[ExampleRow]) -> DifficultyRow:
    return DifficultyRow(
        level=level,
        n_examples=len(rows),
        accuracy=_mean([row.correct for row in rows]),
        loss=_mean([row.loss for row in rows]),
        head_fraction=_mean([row.heads for row in rows]),
        alpha_hard=_mean([row.alpha_hard for row in rows]),
        exit_layer=_mean([row.exit_layer for row in rows]),
        flops_routed=_mean([row.flops_routed for row in rows]),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _difficulty(row: ExampleRow) -> float:
    assert row.difficulty is not None
    return row.difficulty


def _shown(level: float) -> str:
    return str(int(level)) if level == int(level) and abs(level) < 1e6 else units.number(level)
