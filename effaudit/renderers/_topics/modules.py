"""Which parts of a model the FLOPs go to: attention, feed-forward, routers, heads, over all layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from effaudit.record import AuditRecord, ModuleRow
from effaudit.renderers._cells import Cell, Table, number, percent, quantity, text
from effaudit.renderers._topics._bars import Bar, Part, height_in, stacked_bars
from effaudit.renderers._topics._drawing import Drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_DEPTH = 3  # of a path: `blocks.*.attn`
MAX_KINDS = 5  # with a colour of their own; what is left is one more
_MIN_SHARE = 0.005  # of a model's FLOPs, below which a kind is part of the rest
_REST = "everything else"


def by_kind(modules: Sequence[ModuleRow]) -> dict[str, int]:
    """FLOPs by path with the numbers of layers left out; each FLOP once, at the deepest path of MAX_DEPTH."""
    totals = {row.path: row.flops for row in modules if row.path.count(".") < MAX_DEPTH}
    own = dict(totals)
    for path, flops in totals.items():
        parent = path.rpartition(".")[0]
        if path and parent in own:
            own[parent] -= flops
    kinds: dict[str, int] = {}
    for path, flops in own.items():
        if flops > 0:
            kind = ".".join("*" if part.isdigit() else part for part in path.split(".")) or _REST
            kinds[kind] = kinds.get(kind, 0) + flops
    return kinds


def drawing(records: Sequence[AuditRecord]) -> Drawing | None:
    """A bar a model; None where no modules were counted."""
    found = [(record.model.name, kinds) for record in records if (kinds := by_kind(record.modules))]
    if not found:
        return None
    shown = _largest([kinds for _, kinds in found])
    bars = [Bar(name, _bar_parts(kinds, shown)) for name, kinds in found]

    def plot(axes: Sequence[Axes]) -> None:
        stacked_bars(axes[0], bars, shown, "GFLOP in one pass", 1e9)

    alt = f"Bars of executed FLOPs, a row a model, a colour a kind of module: {', '.join(shown)} and everything else"
    heads = ("model", "modules (* stands for every layer)", "FLOPs of a pass", "share")
    table = Table("FLOPs by module", heads, tuple(line for name, kinds in found for line in _lines(name, kinds)))
    return Drawing("modules", "FLOPs by module", alt, table, plot, height_in=height_in(len(bars)) + 0.2)


def _largest(found: Sequence[Mapping[str, int]]) -> list[str]:
    """The kinds that are most of some model, in the order of the models' own parts."""
    peaks: dict[str, float] = {}
    for kinds in found:
        total = sum(kinds.values())
        for kind, flops in kinds.items():
            peaks[kind] = max(peaks.get(kind, 0.0), flops / total)
    worth = [kind for kind, share in peaks.items() if share >= _MIN_SHARE and kind != _REST]
    chosen = set(sorted(worth, key=lambda kind: -peaks[kind])[:MAX_KINDS])
    return [kind for kind in worth if kind in chosen]


def _bar_parts(kinds: Mapping[str, int], shown: Sequence[str]) -> tuple[Part, ...]:
    rest = sum(flops for kind, flops in kinds.items() if kind not in shown)
    parts = [(kind, kinds.get(kind, 0)) for kind in shown] + [(_REST, rest)]
    return tuple(Part(kind, value) for kind, flops in parts if (value := number(flops)))


def _lines(name: str, kinds: Mapping[str, int]) -> list[tuple[Cell, ...]]:
    total = sum(kinds.values())
    return [(text(name), text(kind), quantity(flops, "FLOP"), percent(flops / total)) for kind, flops in kinds.items()]
