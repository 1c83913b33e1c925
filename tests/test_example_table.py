"""Rows of several meters: joined by index whatever their order, read back a column at a time."""

from __future__ import annotations

from math import nan
from pathlib import Path

import numpy as np
import pytest

from effaudit import example_table
from effaudit.errors import EffauditError
from effaudit.example_table import ExampleTable, Spill, write_table


def spill(*batches: tuple[list[int], dict[str, list[float]]]) -> Spill:
    rows = Spill()
    for index, columns in batches:
        rows.add(index, columns)
    return rows


def written(folder: Path, *spills: Spill) -> ExampleTable:
    path = folder / "rows.csv"
    assert write_table(spills, path)
    return ExampleTable(path)


def test_rows_are_joined_by_index_in_order_of_index(tmp_path: Path) -> None:
    first = spill(([2, 0], {"loss": [0.5, nan]}), ([1], {"loss": [0.25]}))
    second = spill(([0, 2, 3], {"budget": [0.75, 0.125, 1.0], "label": [1, 0, 7]}))
    written(tmp_path, first, second)
    lines = (tmp_path / "rows.csv").read_text().splitlines()
    assert lines == ["index,label,loss,budget", "0,1,,0.75", "1,,0.25,", "2,0,0.5,0.125", "3,7,,1"]


@pytest.mark.parametrize("stretch", [1, 2, 7, 1000])
def test_what_is_read_at_a_time_changes_nothing(stretch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example_table, "STRETCH", stretch)
    order = np.random.default_rng(0).permutation(40)
    some = [i for i in range(40) if i % 3]
    table = written(
        tmp_path,
        spill(*(([int(i) for i in part], {"loss": [i / 8 for i in part]}) for part in np.split(order, 8))),
        spill((some, {"heads": [float(i) for i in some]})),
    )
    assert table["index"].tolist() == list(range(40))
    assert table["loss"].tolist() == [i / 8 for i in range(40)]
    assert [i for i, value in enumerate(table["heads"]) if value == i] == some


def test_a_spill_is_the_same_on_disk_and_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example_table, "IN_MEMORY", 64)
    rows = Spill(tmp_path)
    for i in range(100):
        rows.add([i], {"loss": [i / 3]})
    assert np.concatenate(list(rows.stretches())).tolist() == [[i, i / 3] for i in range(100)]
    assert list(tmp_path.iterdir()) == []  # a temporary file without a name, gone whatever happens


def test_numbers_survive(tmp_path: Path) -> None:
    big, small = 2**53 - 1, float(np.float32(0.1))
    table = written(tmp_path, spill(([0], {"flops_routed": [big], "loss": [small], "own": [-1.5]})))
    assert table["flops_routed"][0] == big
    assert np.float32(table["loss"][0]) == np.float32(0.1)
    assert table.names == ("index", "loss", "flops_routed", "own")


def test_a_column_that_nobody_found_is_missing_everywhere(tmp_path: Path) -> None:
    table = written(tmp_path, spill(([0, 1], {"loss": [1.0, 2.0], "difficulty": [nan, nan]})))
    assert np.isnan(table["exit_layer"]).tolist() == [True, True]
    assert ["loss" in table, "difficulty" in table, "exit_layer" in table] == [True, False, False]
    assert len(table) == 2


def test_nothing_found_is_no_file(tmp_path: Path) -> None:
    assert not write_table([Spill()], tmp_path / "rows.csv")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("index,loss\n0,x\n", "line 2: `x` is no number"),
        ("index,loss\n0,inf\n", "line 2: `inf` is no number"),
        ("index,loss\n0,1,2\n", "line 2 has 3 cells, 2 are expected"),
        ("loss\n1\n", "no column `index`"),
        ("", "it is empty"),
    ],
)
def test_damage_is_said_with_its_line(content: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(content)
    with pytest.raises(EffauditError, match=why):
        ExampleTable(path)["loss"]


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(EffauditError, match="cannot read examples"):
        ExampleTable(tmp_path / "none.csv")["loss"]
