"""Counts laid out as the tree of modules: a row for every path, with and without what lies below it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from effaudit.flop_counting.mode import Tally


@dataclass(frozen=True)
class ModuleCount:
    """FLOPs of one module path: `flops` with its children, `own` and `own_by_op` without them; times it was called."""

    flops: int
    own: int
    calls: int
    own_by_op: Mapping[str, int]


@dataclass(frozen=True)
class ElementCount:
    """Work beside products of one module path, with its children and `own` without: FLOPs per element, bytes moved."""

    flops: int
    own: int
    moved: int
    own_moved: int


def module_rows(modules: Iterable[str], tallies: Sequence[Tally]) -> dict[str, ModuleCount]:
    """Rows for the paths `modules` and for all that were counted, parents before children."""
    ops: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    calls: dict[str, int] = defaultdict(int)
    for tally in tallies:
        for path, flops in tally.own.items():
            add_to(ops[path], flops)
        add_to(calls, tally.calls)
    paths = _in_tree_order([*modules, *ops, *calls])
    own = {path: sum(ops[path].values()) for path in paths}
    totals = _with_children(own)
    return {path: ModuleCount(totals[path], own[path], calls.get(path, 0), dict(ops[path])) for path in paths}


def element_rows(modules: Iterable[str], tallies: Sequence[Tally]) -> dict[str, ElementCount]:
    """As `module_rows`, of work that is no product."""
    flops: dict[str, int] = defaultdict(int)
    moved: dict[str, int] = defaultdict(int)
    for tally in tallies:
        add_to(flops, tally.elements)
        add_to(moved, tally.moved)
    paths = _in_tree_order([*modules, *flops, *moved])
    own, own_moved = ({path: sums.get(path, 0) for path in paths} for sums in (flops, moved))
    totals, totals_moved = _with_children(own), _with_children(own_moved)
    return {path: ElementCount(totals[path], own[path], totals_moved[path], own_moved[path]) for path in paths}


def from_path(path: str, modules: Mapping[str, ModuleCount]) -> dict[str, ModuleCount]:
    """Rows as seen from the module at `path`, which becomes the root and takes over what is counted above it."""
    inner, above = modules[path], [row for name, row in modules.items() if not _is_below(name, path)]
    ops: dict[str, int] = defaultdict(int)
    for row in above:
        add_to(ops, row.own_by_op)
    own = sum(row.own for row in above)
    root = ModuleCount(modules[""].flops, own, inner.calls, dict(ops))
    below = {name[len(path) + 1 :]: row for name, row in modules.items() if _is_below(name, path)}
    return {"": root, **below}


def _is_below(name: str, path: str) -> bool:
    return name.startswith(f"{path}.")


def add_to(sums: dict[str, int], more: Mapping[str, int]) -> None:
    for name, n in more.items():
        sums[name] += n


def _with_children(own: Mapping[str, int]) -> dict[str, int]:
    """Sums over each path and all below it; `own` is in tree order."""
    totals = dict(own)
    for path in reversed(totals):
        if path:
            totals[_parent(path)] += totals[path]
    return totals


def _parent(path: str) -> str:
    return path.rpartition(".")[0]


def _in_tree_order(paths: list[str]) -> list[str]:
    """All paths with their ancestors, parents before children, children in the order given."""
    children: dict[str, dict[str, None]] = defaultdict(dict)
    for path in dict.fromkeys(paths):
        while path:
            children[_parent(path)].setdefault(path)
            path = _parent(path)
    ordered, waiting = [], [""]
    while waiting:
        path = waiting.pop()
        ordered.append(path)
        waiting.extend(reversed(children[path]))
    return ordered
