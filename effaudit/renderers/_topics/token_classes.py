"""Which kinds of tokens a model skips: spaces, digits, rare words, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from effaudit.record import AuditRecord, TokenClassRow
from effaudit.renderers._cells import Cell, Table, count, percent, quantity, text
from effaudit.renderers._topics._drawing import Drawing
from effaudit.renderers._topics._heat import heat_map

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ALL = "all"  # the column of all gated blocks together


def table(records: Sequence[AuditRecord]) -> Table:
    """Every class of every model that has classes."""
    lines = tuple(_line(record.model.name, row) for record in records for row in record.token_classes)
    heads = ("model", "class of tokens", "tokens", "loss", "skipped", "gates say", "exit layer")
    return Table("By class of tokens", heads, lines)


def drawings(records: Sequence[AuditRecord]) -> list[Drawing]:
    """One a model that skips by token."""
    routed = [r for r in records if any(row.alpha_hard is not None or row.layers for row in r.token_classes)]
    return [_drawing(number, record) for number, record in enumerate(routed, 1)]


def _drawing(number: int, record: AuditRecord) -> Drawing:
    rows, name = record.token_classes, record.model.name
    n_layers = max(len(row.layers) for row in rows)
    columns = [str(layer) for layer in range(1, n_layers + 1)]
    lines = [(row.name, [*_padded(row, n_layers), _skipped(row.alpha_hard)]) for row in rows]

    def plot(axes: Sequence[Axes]) -> None:
        heat_map(axes[0], [*columns, _ALL], lines)
        axes[0].set_xlabel("layer; `all` is the mean of the gated blocks")

    alt = (
        f"Heat map for {name}: the share in per cent of each class of tokens that each layer leaves out, darker is more"
    )
    shown = Table(
        f"Skipped by class of tokens and layer, {name}",
        ("class of tokens", *(f"layer {column}" for column in columns), "all gated blocks"),
        tuple((text(label), *(percent(share) for share in shares)) for label, shares in lines),
    )
    title = f"Skipped by class of tokens and layer (%): {name}"
    return Drawing(f"token-classes-{number}", title, alt, shown, plot, height_in=1.0 + 0.3 * len(rows))


def _padded(row: TokenClassRow, n_layers: int) -> list[float | None]:
    return [_skipped(kept) for kept in (*row.layers, *[None] * (n_layers - len(row.layers)))]


def _skipped(kept: float | None) -> float | None:
    return None if kept is None else 1 - kept


def _line(name: str, row: TokenClassRow) -> tuple[Cell, ...]:
    return (
        text(name),
        text(row.name),
        count(row.n_tokens),
        quantity(row.loss, "nat"),
        percent(_skipped(row.alpha_hard)),
        percent(_skipped(row.alpha_soft)),
        quantity(row.exit_layer),
    )
