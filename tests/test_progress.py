"""Progress on stderr, by a clock of the tests' own."""

from __future__ import annotations

import io
import sys

import pytest

from effaudit import progress
from effaudit.progress import PLAIN_EVERY_S, tracking


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_lines_come_at_intervals_and_at_the_end(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with tracking("work", 4) as tracker:
        tracker.update(0)
        for done in range(1, 5):
            clock.now += 0.6 * PLAIN_EVERY_S
            tracker.update(done, f"note {done}")
    captured = capsys.readouterr()
    assert captured.err.splitlines() == ["work: 2/4, 12 s left note 2", "work: 4/4 note 4"]
    assert captured.out == ""


def test_time_left_counts_from_where_work_was_resumed(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with tracking("work", 100) as tracker:
        tracker.update(90)
        clock.now += PLAIN_EVERY_S
        tracker.update(95)
    assert capsys.readouterr().err == f"work: 95/100, {PLAIN_EVERY_S:.0f} s left\n"


def test_nothing_gained_tells_no_time(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with tracking("work", 2) as tracker:
        clock.now += PLAIN_EVERY_S
        tracker.update(0, "slow")
    assert capsys.readouterr().err == "work: 0/2 slow\n"


def test_quiet_says_nothing(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with tracking("work", 2, is_quiet=True) as tracker:
        clock.now += 10 * PLAIN_EVERY_S
        tracker.update(2, "done")
    captured = capsys.readouterr()
    assert captured.out + captured.err == ""


def test_terminal_shows_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with tracking("work", 3) as tracker:
        tracker.update(3, "loss 0.5")
    assert "3/3" in terminal.getvalue()
    assert "loss 0.5" in terminal.getvalue()
    assert capsys.readouterr().out == ""
