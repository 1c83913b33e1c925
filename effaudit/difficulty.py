"""Whether a model spends more on harder examples: the per-example table, grouped by difficulty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from effaudit import units
from effaudit.example_table import ExampleTable, Floats

MAX_LEVELS = 10  # with more distinct difficulties than this, quartiles are shown instead of levels
_N_BINS = 4

Chosen = NDArray[np.int64]  # rows of the table


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


def by_difficulty(table: ExampleTable | None) -> tuple[DifficultyRow, ...]:
    """From the easiest to the hardest; examples without a difficulty are left out."""
    if table is None:
        return ()
    return tuple(_summary(level, table, chosen) for level, chosen in _levels(table["difficulty"]))


def _levels(difficulty: Floats) -> list[tuple[str, Chosen]]:
    known = np.flatnonzero(~np.isnan(difficulty))
    known = known[np.argsort(difficulty[known], kind="stable")]
    levels, starts = np.unique(difficulty[known], return_index=True)
    if len(levels) <= MAX_LEVELS:
        parts = np.split(known, starts[1:]) if len(levels) else []
        return [(_shown(level), part) for level, part in zip(levels.tolist(), parts, strict=True)]
    bounds = [round(i * len(known) / _N_BINS) for i in range(1, _N_BINS)]
    bins = [part for part in np.split(known, bounds) if len(part)]
    return [(f"{_shown(difficulty[b[0]])} to {_shown(difficulty[b[-1]])}", b) for b in bins]


def _summary(level: str, table: ExampleTable, chosen: Chosen) -> DifficultyRow:
    return DifficultyRow(
        level=level,
        n_examples=len(chosen),
        accuracy=_mean(table["correct"], chosen),
        loss=_mean(table["loss"], chosen),
        head_fraction=_mean(table["heads"], chosen),
        alpha_hard=_mean(table["alpha_hard"], chosen),
        exit_layer=_mean(table["exit_layer"], chosen),
        flops_routed=_mean(table["flops_routed"], chosen),
    )


def _mean(column: Floats, chosen: Chosen | Sequence[int]) -> float | None:
    known = column[chosen]
    known = known[~np.isnan(known)]
    return float(known.mean()) if len(known) else None


def _shown(level: float) -> str:
    return str(int(level)) if level == int(level) and abs(level) < 1e6 else units.number(float(level))
