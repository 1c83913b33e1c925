"""The FLOP benchmark: its rows are right by hand, its table says what ran and what did not."""

from __future__ import annotations

import pytest

from effaudit.bench import __main__ as bench
from effaudit.bench import flops
from effaudit.bench._flop_rows import ROWS

PUBLISHED = [65_536, 131_072, 131_072, 98_304, 327_680, 327_680, 589_824, 589_824, 131_072, 262_144, 65_536, 65_536]


def test_rows_are_the_fourteen_worked_out_by_hand() -> None:
    assert [row.flops for row in ROWS.values()] == [*PUBLISHED, 65_536, 102_400]


def test_table_names_the_reason_of_a_counter_that_did_not_run() -> None:
    table = flops.table([flops.Verdict("a", 14, 1.25), flops.Verdict("b", None, None, "could not be installed")])
    assert table.splitlines()[2:] == ["| a | 14 | 1.25 |", "| b | could not be installed |  |"]


def test_unknown_benchmark_is_a_user_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["flps"]) == 2
    assert "did you mean `flops`" in capsys.readouterr().err
