from collections.abc import Callable, Iterator
from math import log1p

import pytest

from effaudit.against.processes import Side, TimedModel
from effaudit.against.race import Outcome, race
from effaudit.against.rows import QUIETER, rows_of
from effaudit.against.session import Rounds, Session, Timing

BASE, CURRENT = (Side(name, "python", (), ".", "p.yaml") for name in ("base", "current"))
WOBBLE = (0.001, -0.001, 0.0005, -0.0005)


class Clock:
    now = 0.0


Fix = Callable[..., Outcome]


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Fix:
    """A race whose sessions find given changes and take given seconds."""

    def hold(
        max_seconds: float = 60.0, seconds: float = 5.0, interrupted: Iterator[int] | None = None,
        late_after: int = 10**6, **changes: float | None,
    ) -> Outcome:  # fmt: skip
        clock = Clock()
        interrupted = interrupted or iter(lambda: 0, 1)
        n_held = 0

        def session(
            self: Timing, first: Side, second: Side, index: int, without: frozenset[str] = frozenset()
        ) -> Session:
            nonlocal n_held
            if n_held == late_after:
                raise TimeoutError("`base` took longer than 3 s")
            clock.now += seconds
            rounds = {}
            for name, change in changes.items():
                if change is None or name in without:
                    continue
                ratio = log1p(change if second is CURRENT else 0.0) + WOBBLE[n_held % 4]
                rounds[name] = Rounds([ratio] * 9, [0.01] * 9, [0.0105] * 9, 90, 90 * next(interrupted))
            n_held += 1
            known = tuple(TimedModel(name, (), 0.01, True) for name in (*changes, "gone"))
            mine = tuple(TimedModel(name, (), 0.01, True) for name in (*changes, "new"))
            return Session(known, mine, rounds, seconds)

        monkeypatch.setattr(Timing, "session", session)
        return race(BASE, CURRENT, 0.01, max_seconds, lambda s: None, lambda: clock.now)

    return hold


def verdicts(outcome: Outcome) -> dict[str, str]:
    return {row.model: row.verdict for row in rows_of(outcome, 0.01, "HEAD")}


def test_each_model_gets_its_verdict(held: Fix) -> None:
    outcome = held(slow=0.05, fast=-0.05, same=0.0)
    assert verdicts(outcome) == {
        "slow": "slower", "fast": "faster", "same": "same", "gone": "undecided", "new": "skipped"
    }  # fmt: skip
    row = rows_of(outcome, 0.01, "HEAD")[0]
    assert row.change == pytest.approx(0.05, abs=0.001)
    assert row.interval is not None
    assert row.interval[0] < 0.05 < row.interval[1]
    assert row.why.startswith("+5.00 % [+4.")
    assert "over 4 sessions; base against base, a round varies by 0.00 %" in row.why
    assert (row.baseline, row.current) == (0.01, 0.0105)


def test_it_ends_as_soon_as_all_is_decided(held: Fix) -> None:
    outcome = held(max_seconds=600.0, slow=0.05)
    assert outcome.n_sessions == 4
    assert outcome.seconds == 25.0  # one of base against base before


def test_what_is_too_near_to_the_tolerance_stays_undecided(held: Fix) -> None:
    outcome = held(near=0.0101)
    assert verdicts(outcome)["near"] == "undecided"
    assert outcome.seconds <= 60.0
    row = rows_of(outcome, 0.01, "HEAD")[0]
    assert row.hint == QUIETER


def test_without_a_free_cpu_nothing_is_begun(held: Fix) -> None:
    outcome = held(interrupted=iter(lambda: 1, 0), slow=0.5)
    assert outcome.n_sessions == 0
    (row,) = rows_of(outcome, 0.01, "HEAD")
    assert row.verdict == "undecided"
    assert row.why == "no free CPU: 100% of the timed runs were interrupted by other processes"


def test_sessions_without_a_free_cpu_do_not_count(held: Fix) -> None:
    outcome = held(max_seconds=40.0, interrupted=iter([0, 0, 1, 1, 1, 0, 1, 1]), slow=0.5)
    assert outcome.n_busy == 5
    assert verdicts(outcome)["slow"] == "undecided"
    assert "only 2 sessions in 40 s, 5 more without a free CPU, at least 4" in rows_of(outcome, 0.01, "HEAD")[0].why


@pytest.mark.parametrize("late_after", [0, 3, 6])
def test_the_time_is_over_whatever_the_processes_do(held: Fix, late_after: int) -> None:
    outcome = held(late_after=late_after, near=0.0101)
    rows = rows_of(outcome, 0.01, "HEAD")
    assert rows[0].verdict == "undecided"
    assert "`base` took longer than 3 s" in rows[0].why
