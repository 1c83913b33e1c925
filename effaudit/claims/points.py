"""The figures behind the verdicts: a table with a row a model and, in each cell, a figure over seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from effaudit.claims.evidence import Estimate, Evidence, Scale, change, value
from effaudit.renderers._cells import NOTHING, Cell, Table, count, text

Column = Callable[[str], Estimate | None]  # of the model's name


def points_table(caption: str, evidence: Evidence, models: Sequence[str], columns: Mapping[str, Column]) -> Table:
    """The models in their order, with the number of seeds that each was audited with."""

    def row(model: str) -> tuple[Cell, ...]:
        n_seeds = sum(model in records for records in evidence.by_seed.values())
        return (text(model), count(n_seeds), *(_cell(column(model)) for column in columns.values()))

    return Table(caption, ("model", "seeds", *columns), tuple(map(row, models)))


def measured(evidence: Evidence, name: str, scale: Scale = "share", of: Callable[[str], str] = str) -> Column:
    """A measurement of the record that `of` names for a model."""
    return lambda model: evidence.over_seeds(lambda records: value(records, of(model), name), scale)


def against_dense(evidence: Evidence, name: str, of: Callable[[str], str] = str) -> Column:
    """A measurement as a change against the dense model."""
    return lambda model: evidence.over_seeds(lambda records: change(records, "dense", of(model), name), "change")


def _cell(estimate: Estimate | None) -> Cell:
    return Cell(NOTHING) if estimate is None else Cell(str(estimate), estimate.value)
