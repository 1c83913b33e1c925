"""What a race says as rows of the gate."""

from __future__ import annotations

from effaudit import units
from effaudit.against.race import Duel, Outcome, median_s
from effaudit.against.sequential import MIN_VALUES
from effaudit.gate_rows import ACCEPT, GateRow, whole_model

TIMED = "latency.p50"  # the measurement that a race decides
TIME_TOLERANCE = 0.01  # where none is named: a 2 % slowdown is told from it within minutes on a quiet machine

QUIETER = "repeat it on a quieter machine or with more --max-seconds, or accept more (--tolerance latency.p50=…)"
FASTER = "make it faster again, or accept more (--tolerance latency.p50=…)"


def rows_of(outcome: Outcome, tolerance: float, revision: str) -> tuple[GateRow, ...]:
    """A row a model; where nothing could be timed at all, one that says so."""
    rows = [_row(name, duel, outcome, tolerance) for name, duel in outcome.duels.items()]
    rows += [
        whole_model(name, "undecided", f"`{revision}` has the model, the working tree has not", ACCEPT)
        for name in outcome.only_first
    ]
    rows += [
        whole_model(name, "skipped", f"the model is not in `{revision}`", "nothing is to be done")
        for name in outcome.only_second
    ]
    if not rows:
        names = outcome.noise or {"all models": 0.0}
        rows = [_untimed(name, outcome, tolerance) for name in names]
    return tuple(rows)


def _row(name: str, duel: Duel, outcome: Outcome, tolerance: float) -> GateRow:
    look = duel.look
    if look is None:
        return _untimed(name, outcome, tolerance, len(duel.test.values))
    verdict = look.finding or "undecided"
    told = f"{units.signed_percent(look.change, 2)} {_percents(look.low, look.high)} over {look.n} sessions"
    noise = f"; base against base, a round varies by {units.percent(outcome.noise.get(name, 0.0), 2)}"
    because = f"; {outcome.obstacle}" if outcome.obstacle and look.finding is None else ""
    hint = {"slower": FASTER, "undecided": QUIETER}.get(verdict, "")
    return GateRow(
        model=name,
        measurement=TIMED,
        unit="s",
        baseline=median_s(duel.first_s),
        current=median_s(duel.second_s),
        change=look.change,
        interval=(look.low, look.high),
        tolerance=tolerance,
        verdict=verdict,
        why=f"{told}{noise}{because}",
        hint=hint,
    )


def _untimed(name: str, outcome: Outcome, tolerance: float, n: int = 0) -> GateRow:
    busy = f", {outcome.n_busy} more without a free CPU" if outcome.n_busy else ""
    why = outcome.obstacle or f"only {n} sessions in {outcome.seconds:.0f} s{busy}, at least {MIN_VALUES} are needed"
    return GateRow(name, TIMED, "s", None, None, None, None, tolerance, "undecided", why, QUIETER)


def _percents(low: float, high: float) -> str:
    return f"[{units.signed_percent(low, 2)}, {units.signed_percent(high, 2)}]"
