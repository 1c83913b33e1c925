import pytest

from effaudit.bench import gate
from effaudit.bench._gate_runs import Run
from effaudit.bench._gate_simulation import Recorded, Scenario, simulate

QUIET = [Recorded(tuple(0.002 * ((i * 7 + s) % 11 - 5) / 5 for i in range(40)), 5.0) for s in range(8)]


@pytest.mark.parametrize(("effect", "verdict"), [(0.0, "same"), (0.05, "slower"), (-0.05, "faster"), (0.02, "slower")])
def test_drawn_runs_end_as_a_quiet_machine_would_have_them(effect: float, verdict: str) -> None:
    counts = simulate(QUIET, Scenario("s", effect, 60.0), 0.01, 100)
    assert sum(counts.values()) == 100
    assert counts[verdict] >= 95


def test_too_little_time_or_no_rounds_decide_nothing() -> None:
    assert simulate(QUIET, Scenario("s", 0.05, 20.0), 0.01, 20) == {"undecided": 20}
    assert simulate([Recorded((), 5.0)], Scenario("s", 0.05, 60.0), 0.01, 20) == {"undecided": 20}


def test_draws_follow_their_seed() -> None:
    noisy = [
        Recorded(tuple(0.03 * ((i * 7 + s * 3) % 11 - 5) / 5 + 0.004 * s for i in range(40)), 5.0) for s in range(8)
    ]
    scenario = Scenario("s", 0.02, 60.0)
    assert simulate(noisy, scenario, 0.01, 50) == simulate(noisy, scenario, 0.01, 50)


def test_the_table_counts_verdicts() -> None:
    runs = [Run(1, "slower", 0.05, 30.0), Run(1, "slower", 0.06, 40.0), Run(2, "undecided", None, 60.0)]
    row = gate._row("5 % more", runs)
    assert row == ("5 % more", "2 of 3", "0 of 3", "0 of 3", "1 of 3", "+5.50 %", "40 s")
    assert gate._table(("real runs",), [row])[-1] == "| 5 % more | 2 of 3 | 0 of 3 | 0 of 3 | 1 of 3 | +5.50 % | 40 s |"
