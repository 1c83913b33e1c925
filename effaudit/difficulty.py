"""Whether a model spends more on harder examples, and how much of that is length: the table by difficulty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from effaudit import stats, units
from effaudit.example_table import INDEX, ExampleTable, Floats

MAX_LEVELS = 10  # with more distinct difficulties than this, quartiles are shown instead of levels
_N_BINS = 4

LEVEL, DENSE_LOSS, LENGTH = "level", "dense_loss", "length"  # of the dataset, of the dense model, in tokens
OWN_COLUMNS = {LEVEL: "difficulty", LENGTH: "n_tokens"}
# What a model can spend on an example, as the table shows it; each is a correlation of its own.
EFFORTS = ("heads", "budget", "alpha_hard", "exit_layer", "flops_routed")

Chosen = NDArray[np.int64]  # rows of the table


@dataclass(frozen=True)
class Difficulty:
    """How hard each example of a table is, larger is harder, and by what."""

    name: str
    values: Floats


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
    budget: float | None = None
    n_tokens: float | None = None


@dataclass(frozen=True)
class Follows:
    """How what a model spends (`effort`, a column of the table) follows difficulty, and how much of it is length.

    `rho` is Spearman's with its 95 % interval, `given_length` the same where length is held fixed (None where length
    does not vary, or is the difficulty), `of_length` that of effort and length.
    """

    effort: str
    difficulty: str
    rho: stats.Interval
    given_length: stats.Interval | None
    of_length: stats.Interval | None
    n_examples: int


def difficulty_of(table: ExampleTable, asked: str | None, dense: ExampleTable | None) -> Difficulty | None:
    """As a profile asks: the dataset's level, the dense model's loss, length, or a column of the table.

    Left to itself, the first of these that there is; None where the table has nothing of the kind.
    """
    for name in (LEVEL, DENSE_LOSS, LENGTH) if asked is None else (asked,):
        if name == DENSE_LOSS:
            values = None if dense is None else _loss_of(dense, table)
        else:
            values = table.get(OWN_COLUMNS.get(name, name))
        if values is not None:
            return Difficulty(name, values)
    return None


def _loss_of(dense: ExampleTable, table: ExampleTable) -> Floats | None:
    """The dense model's loss on each example of the table, NaN where it has none."""
    if "loss" not in dense:
        return None
    _, here, there = np.intersect1d(table[INDEX], dense[INDEX], assume_unique=True, return_indices=True)
    values: Floats = np.full(len(table), np.nan)
    values[here] = dense["loss"][there]
    return values


def by_difficulty(table: ExampleTable | None, difficulty: Floats | None = None) -> tuple[DifficultyRow, ...]:
    """From the easiest to the hardest, by the dataset's own level where none is given.

    Examples without a difficulty are left out.
    """
    if table is None:
        return ()
    values = table["difficulty"] if difficulty is None else difficulty
    return tuple(_summary(level, table, chosen) for level, chosen in _levels(values))


def follows(table: ExampleTable, difficulty: Difficulty) -> tuple[Follows, ...]:
    """For everything that the model spends by example: whether it follows difficulty."""
    found = (_follows(effort, difficulty, table) for effort in EFFORTS if effort in table)
    return tuple(row for row in found if row is not None)


def _follows(effort: str, difficulty: Difficulty, table: ExampleTable) -> Follows | None:
    is_length = difficulty.name == LENGTH
    length = None if is_length or "n_tokens" not in table else table["n_tokens"]
    found = stats.rank_correlation(difficulty.values, table[effort], length)
    if found is None:
        return None
    of_length = None if length is None else stats.rank_correlation(length, table[effort])
    return Follows(effort, difficulty.name, found.rho, found.given, of_length.rho if of_length else None, found.n)


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
        budget=_mean(table["budget"], chosen),
        n_tokens=_mean(table["n_tokens"], chosen),
    )


def _mean(column: Floats, chosen: Chosen | Sequence[int]) -> float | None:
    known = column[chosen]
    known = known[~np.isnan(known)]
    return float(known.mean()) if len(known) else None


def _shown(level: float) -> str:
    return str(int(level)) if level == int(level) and abs(level) < 1e6 else units.number(float(level))
