"""The benchmark of costs: its bounds, its turns and its table, on figures that the tests make up."""

from __future__ import annotations

import sys

import pytest

from effaudit.bench import cost
from effaudit.errors import EffauditError
from effaudit.stats import Interval


@pytest.mark.parametrize(("wall_s", "is_kept"), [(54.0, True), (54.1, False)])
def test_a_profile_may_take_thirty_seconds_and_twelve_passes(wall_s: float, is_kept: bool) -> None:
    row = cost.profile_row("demo", wall_s, 2.0)
    assert row.is_kept is is_kept
    assert row.bound == "54.0 s (30 s + 12 t)"
    assert "t = 2.00 s" in row.what


@pytest.mark.parametrize(
    ("low", "high", "is_kept"),
    [(0.99, 1.01, True), (0.981, 1.019, True), (0.95, 0.97, False), (1.03, 1.05, False), (0.99, 1.03, None)],
)
def test_the_energy_meter_may_move_the_median_by_two_percent(low: float, high: float, is_kept: bool | None) -> None:
    assert cost.energy_row(Interval((low + high) / 2, low, high)).is_kept is is_kept


@pytest.mark.parametrize(
    ("seconds", "has_torch", "is_kept"), [(0.1, False, True), (0.1, True, False), (0.5, False, False)]
)
def test_the_command_starts_soon_and_without_torch(seconds: float, has_torch: bool, is_kept: bool) -> None:
    assert cost.start_row("effaudit --help", [9.0, seconds, seconds], has_torch).is_kept is is_kept


def test_pairs_go_there_and_back_after_a_turn_that_does_not_count() -> None:
    order: list[str] = []

    def figure(name: str, seconds: float) -> cost.Figure:
        def once() -> float:
            order.append(name)
            return seconds if len(order) > 2 else 1000.0

        return once

    ratio = cost.in_turns(figure("A", 2.0), figure("B", 3.0), 6)
    assert "".join(order) == "AB" + "ABBA" * 3
    assert (ratio.value, ratio.low, ratio.high) == (1.5, 1.5, 1.5)


def test_the_table_says_what_keeps_its_bound() -> None:
    rows = [
        cost.profile_row("demo", 20.0, 1.0),
        cost.energy_row(Interval(1.0, 0.9, 1.1)),
        cost.start_row("effaudit --help", [0.08] * 3, True),
    ]
    assert cost.table(rows).splitlines() == [
        "| what | measured | bound | kept |",
        "|---|---|---|---|",
        "| effaudit profile demo --model dense, t = 1.00 s | 20.0 s | 42.0 s (30 s + 12 t) | yes |",
        "| latency.p50 with the energy meter / without, 48 pairs | 1.000 [0.900, 1.100] | 0.98 to 1.02 | unsure |",
        "| effaudit --help, median of 3 | 0.08 s, torch | 0.4 s, no torch | no |",
    ]


def test_torch_is_seen_where_it_is_imported() -> None:
    assert not cost._imports_torch(cost.IMPORT)
    assert not cost._imports_torch(cost.HELP)
    assert cost._imports_torch([sys.executable, "-c", "import torch"])


def test_a_command_that_fails_is_named_with_its_last_line() -> None:
    with pytest.raises(EffauditError, match="failed: no luck"):
        cost._done([sys.executable, "-c", "raise SystemExit('no luck')"])
