"""The tree of FLOPs: every row adds up, folds, and fits a terminal."""

from __future__ import annotations

import re
from itertools import takewhile

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from effaudit.record import ModuleRow
from effaudit.renderers._module_tree import module_tree

MODULES = (
    ModuleRow(path="", flops=1000, calls=2, ops={}, elementwise=70, gathered=40),
    ModuleRow(path="blocks", flops=900, calls=0, ops={}, elementwise=60, gathered=40),
    ModuleRow(path="blocks.0", flops=900, calls=2, ops={"aten.mm": 100}, elementwise=60, gathered=40),
    ModuleRow(path="blocks.0.attn", flops=800, calls=2, ops={"aten.mm": 600, "aten.bmm": 200}, elementwise=50),
    ModuleRow(path="blocks.0.norm", flops=0, calls=2, elementwise=10, gathered=0),
    ModuleRow(path="blocks.0.drop", flops=0, calls=2, elementwise=0, gathered=0),
    ModuleRow(path="router", flops=100, calls=2, ops={"aten.addmm": 100}, elementwise=0, gathered=0),
)


def _rows(lines: list[str]) -> list[tuple[int, str, str]]:
    """Level, name and figure of each line of the tree."""
    body = takewhile(lambda line: line and not line.startswith("  ·"), lines[2:])
    found = [re.match(r"  (\s*)(.+?)  +(\S+ \S+)", line) for line in body]
    return [(len(m[1]) // 2, m[2], m[3]) for m in found if m]


def test_own_work_has_rows_by_kind() -> None:
    lines = module_tree(MODULES)
    assert _rows(lines) == [
        (0, "whole model", "1.00 kFLOP"),
        (1, "· per element", "10.0 FLOP"),
        (1, "blocks", "900 FLOP"),
        (2, "0", "900 FLOP"),
        (3, "· mm", "100 FLOP"),
        (3, "· gather, scatter", "40.0 B"),
        (3, "attn", "800 FLOP"),
        (4, "· mm", "600 FLOP"),
        (4, "· bmm", "200 FLOP"),
        (4, "· per element", "50.0 FLOP"),
        (3, "norm", "0 FLOP"),
        (4, "· per element", "10.0 FLOP"),
        (1, "router", "100 FLOP"),
    ]
    assert "100.0 % ##############         2" in lines[2]
    assert [line.split()[:2] for line in lines[lines.index("FLOPs by op") + 1 :]] == [
        ["mm", "700"],
        ["bmm", "200"],
        ["addmm", "100"],
    ]


def test_folded_modules_hold_what_is_below_them() -> None:
    assert _rows(module_tree(MODULES, 1)) == [
        (0, "whole model", "1.00 kFLOP"),
        (1, "· per element", "10.0 FLOP"),
        (1, "blocks", "900 FLOP"),
        (2, "· per element", "60.0 FLOP"),
        (2, "· gather, scatter", "40.0 B"),
        (1, "router", "100 FLOP"),
    ]
    assert next(name for _, name, _ in _rows(module_tree(MODULES, 0))) == "whole model"


def test_records_without_ops_or_work() -> None:
    old = [ModuleRow(path=row.path, flops=row.flops, calls=row.calls) for row in MODULES]
    lines = module_tree(old)
    assert "· own work" in "\n".join(lines)
    assert "FLOPs by op" not in lines
    assert module_tree([]) == module_tree([ModuleRow(path="", flops=0, calls=1)]) == []


paths = st.lists(st.sampled_from("abc"), max_size=5).map(".".join)


@settings(deadline=None)
@given(st.dictionaries(paths, st.integers(0, 10**15), min_size=1), st.integers(0, 4))
def test_every_tree_fits(own: dict[str, int], depth: int) -> None:
    known = {path.rsplit(".", n)[0] for path in own for n in range(path.count(".") + 1)} | {""}
    rows = [
        ModuleRow(
            path=path,
            flops=sum(n for other, n in own.items() if not path or f"{other}.".startswith(f"{path}.")),
            calls=10**6,
            ops={"aten._scaled_dot_product_flash_attention_for_cpu": own.get(path, 0)},
            elementwise=own.get(path),
        )
        for path in sorted(known)
    ]
    for lines in (module_tree(rows), module_tree(rows, depth)):
        assert all(cell_len(line) <= 80 for line in lines)
        assert all(level <= depth + 1 for level, _, _ in _rows(module_tree(rows, depth)))
