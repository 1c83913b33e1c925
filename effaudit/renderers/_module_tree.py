"""FLOPs as a tree of modules with bars: own + children is the total at every node, the root is all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from effaudit import units
from effaudit.record import ModuleRow
from effaudit.renderers._layout import bar, left, right, shorten, wrap

_NAME, _FIGURE, _SHARE, _BAR, _CALLS = 30, 12, 8, 14, 9
_OWN = "· "  # leads what a module does itself, outside those below it

_KEY = f"{_OWN}work of the module itself, of a folded one with all below; what is no product has no share"

PER_ELEMENT = f"{_OWN}per element"
GATHERED = f"{_OWN}gather, scatter"


@dataclass(frozen=True)
class Node:
    """One module path with its direct children; `own` work is what they leave over."""

    row: ModuleRow
    level: int
    children: tuple[ModuleRow, ...]

    @property
    def name(self) -> str:
        return self.row.path.rpartition(".")[2] or "whole model"

    @property
    def own(self) -> int:
        return self.row.flops - sum(child.flops for child in self.children)

    @property
    def has_work(self) -> bool:
        return bool(self.row.flops or self.row.elementwise or self.row.gathered)


def module_tree(modules: Sequence[ModuleRow], depth: int | None = None) -> list[str]:
    """The tree down to `depth` levels below the root, with a row for each kind of work; then FLOPs by op.

    Modules without work are left out. Work per element and gathered bytes have rows where they were counted, outside
    the shares.
    """
    nodes = [node for node in _nodes(modules) if node.has_work and (depth is None or node.level <= depth)]
    if not nodes:
        return []
    total = total_flops(modules)
    heads = f"{left('module', _NAME)} {right('FLOPs', _FIGURE)} {right('share', _SHARE)}"
    lines = ["FLOPs by module", f"  {heads} {right('calls', _BAR + 1 + _CALLS)}"]
    for node in nodes:
        is_folded = node.level == depth
        lines.append(row_line(node, total))
        lines += _own_lines(node, total, is_folded)
    if any(_OWN in line for line in lines):
        lines += wrap(_KEY, "  ", "  ")
    return [*lines, "", *_by_op(modules, total)]


def total_flops(modules: Sequence[ModuleRow]) -> int:
    """The root's, which has its children's too."""
    return max((row.flops for row in modules), default=0)


def row_line(node: Node, total: int) -> str:
    """A module's line: its FLOPs with those below it, their share of the total, a bar, its calls."""
    return _line("  " * node.level + node.name, node.row.flops, total, f"{node.row.calls:,}")


def tree_nodes(modules: Sequence[ModuleRow], depth: int) -> list[Node]:
    """Those of the tree that have FLOPs, down to `depth` levels below the root."""
    return [node for node in _nodes(modules) if node.row.flops and node.level <= depth]


def _nodes(modules: Sequence[ModuleRow]) -> Iterator[Node]:
    children: dict[str, list[ModuleRow]] = defaultdict(list)
    for row in modules:
        if row.path:
            children[row.path.rpartition(".")[0]].append(row)
    for row in modules:
        level = row.path.count(".") + 1 if row.path else 0
        yield Node(row, level, tuple(children[row.path]))


def _own_lines(node: Node, total: int, is_folded: bool) -> list[str]:
    """What the module does itself, by kind; of a folded one, only what is no FLOP, with all below it."""
    indent, lines = "  " * (node.level + 1), []
    has_children = any(child.flops for child in node.children)
    if not is_folded and node.own and (has_children or len(node.row.ops) > 1):
        ops = node.row.ops or {"own work": node.own}
        lines += [_line(f"{indent}{_OWN}{_short(op)}", flops, total) for op, flops in ops.items()]
    below = () if is_folded else node.children
    kinds = (
        (PER_ELEMENT, "FLOP", node.row.elementwise, [child.elementwise for child in below]),
        (GATHERED, "B", node.row.gathered, [child.gathered for child in below]),
    )
    for label, unit, amount, of_children in kinds:
        own = (amount or 0) - sum(part or 0 for part in of_children)
        if own:
            lines.append(f"  {left(indent + label, _NAME)} {right(units.quantity(own, unit), _FIGURE)}")
    return lines


def _by_op(modules: Sequence[ModuleRow], total: int) -> list[str]:
    sums: dict[str, int] = defaultdict(int)
    for row in modules:
        for op, flops in row.ops.items():
            sums[op] += flops
    ordered = sorted(((flops, op) for op, flops in sums.items() if flops), reverse=True)
    return ["FLOPs by op", *(_line(_short(op), flops, total) for flops, op in ordered)] if ordered else []


def _short(op: str) -> str:
    return op.removeprefix("aten.")


def _line(name: str, flops: int, total: int, calls: str = "") -> str:
    share = flops / total if total else 0.0
    figure, part = right(units.quantity(flops, "FLOP"), _FIGURE), right(units.percent(share), _SHARE)
    return f"  {left(name, _NAME)} {figure} {part} {bar(share, _BAR)} {right(shorten(calls, _CALLS), _CALLS)}".rstrip()
