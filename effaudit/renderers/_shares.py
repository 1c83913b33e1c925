"""What share of a model runs, by layer, by difficulty, by class of tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from effaudit.difficulty import Difficulty, DifficultyRow, by_difficulty, difficulty_of
from effaudit.example_table import ExampleTable
from effaudit.ladder import n_layers, reference_of
from effaudit.model_targets import OWN
from effaudit.record import AuditRecord, LayerRow

Examples = Mapping[str, ExampleTable]  # by model name


@dataclass(frozen=True)
class Share:
    """Of heads, tokens or layers in one group: what runs by the hard rule, what the gates say, what exits here."""

    group: str
    runs: float | None
    claimed: float | None = None
    exits: float | None = None

    @property
    def skipped(self) -> float | None:
        return None if self.runs is None else 1 - self.runs


@dataclass(frozen=True)
class Shares:
    """One model, group by group."""

    model: str
    shares: tuple[Share, ...]


def by_layer(records: Sequence[AuditRecord]) -> tuple[Shares, ...]:
    """The models that choose in some layer; the group is the layer's number."""
    found = (Shares(record.model.name, _layers(record.layers)) for record in records)
    return tuple(shares for shares in found if shares.shares)


def by_level(records: Sequence[AuditRecord], examples: Examples) -> tuple[Shares, ...]:
    """The models that choose, by difficulty of the examples, the easiest first."""
    found = []
    for record in records:
        rows = levels_of(record, records, examples)
        shares = tuple(Share(row.level, effort(row, record)) for row in rows)
        if len(rows) > 1 and any(share.runs is not None for share in shares):
            found.append(Shares(record.model.name, shares))
    return tuple(found)


def by_token_class(records: Sequence[AuditRecord]) -> tuple[Shares, ...]:
    """The models that choose token by token, by class of the token."""
    found = []
    for record in records:
        shares = tuple(Share(row.name, row.alpha_hard, row.alpha_soft) for row in record.token_classes)
        if any(share.runs is not None for share in shares):
            found.append(Shares(record.model.name, shares))
    return tuple(found)


def levels_of(record: AuditRecord, records: Sequence[AuditRecord], examples: Examples) -> tuple[DifficultyRow, ...]:
    table, difficulty = examples.get(record.model.name), difficulty_in(record, records, examples)
    return () if difficulty is None else by_difficulty(table, difficulty.values)


def difficulty_in(record: AuditRecord, records: Sequence[AuditRecord], examples: Examples) -> Difficulty | None:
    """How hard the examples are by what the record's profile asks for."""
    table, dense = examples.get(record.model.name), reference_of(record, records)
    if table is None:
        return None
    asked = record.profile.get("difficulty")
    known = None if dense is None else examples.get(dense.model.name)
    is_paired = known is not None and len(known) == len(table)
    return difficulty_of(table, None if asked is None else str(asked), known if is_paired else None)


def effort(row: DifficultyRow, record: AuditRecord) -> float | None:
    """The share of all layers, heads or token-blocks that examples of one difficulty run; None without a choice."""
    n = n_layers(record)
    if row.exit_layer is not None:
        return row.exit_layer / n if n else None
    if row.alpha_hard is not None and n:
        gated = _n_gated(record, n)
        return (n - gated + gated * row.alpha_hard) / n
    return row.head_fraction


def _n_gated(record: AuditRecord, n: int) -> int:
    """Layers that decide about tokens: all but the first, which always runs, or those that a user's model logs."""
    if record.model.variant in OWN:
        return sum(row.alpha_hard is not None for row in record.layers)
    return n - 1


def _layers(rows: Sequence[LayerRow]) -> tuple[Share, ...]:
    shares = []
    left = 0.0
    for row in rows:
        running = None
        if row.exit_share is not None:
            running, left = 1 - left, left + row.exit_share
        runs = _first(row.alpha_hard, row.head_fraction, running)
        claimed = _first(row.alpha_soft, row.budget)
        if runs is not None or claimed is not None:
            shares.append(Share(str(row.layer), runs, claimed, row.exit_share))
    return tuple(shares)


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)
