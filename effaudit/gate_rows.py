"""What a gate decided: a row a measurement, and the exit code of them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from effaudit.comparison import Interval

GateVerdict = Literal["pass", "improved", "same", "faster", "skipped", "regressed", "slower", "undecided"]

FAILED: tuple[GateVerdict, ...] = ("regressed", "slower")
GAINED: tuple[GateVerdict, ...] = ("improved", "faster")
OUTCOMES = {0: "pass", 1: "regressed", 2: "could not decide"}  # by exit code

MEND = "mend it, or accept it with `effaudit baseline update`"
ACCEPT = "update the baseline, and look at what that changes"


@dataclass(frozen=True)
class GateRow:
    """One measurement of one model; `change` is relative to the baseline, `tolerance` how much worse is accepted.

    `interval` is the interval of `change` where there is one. `why` says how the verdict came about, `hint`
    what to do about it.
    """

    model: str
    measurement: str
    unit: str
    baseline: int | float | None
    current: int | float | None
    change: float | None
    interval: Interval | None
    tolerance: float | None
    verdict: GateVerdict
    why: str
    hint: str = ""

    @property
    def needs_attention(self) -> bool:
        """Whether it keeps the gate from passing."""
        return self.verdict in FAILED or self.verdict == "undecided"


@dataclass(frozen=True)
class GateResult:
    """True where it passes, so that a test may assert it."""

    rows: tuple[GateRow, ...]

    @property
    def exit_code(self) -> int:
        """1 for a regression, else 2 where something is undecided or nothing was compared, else 0."""
        verdicts = {row.verdict for row in self.rows}
        if not verdicts.isdisjoint(FAILED):
            return 1
        return 2 if "undecided" in verdicts or verdicts <= {"skipped"} else 0

    @property
    def outcome(self) -> str:
        return OUTCOMES[self.exit_code]

    def __bool__(self) -> bool:
        return self.exit_code == 0


def whole_model(model: str, verdict: GateVerdict, why: str, hint: str) -> GateRow:
    """The row of a model of which no measurement can be judged."""
    return GateRow(model, "all", "1", None, None, None, None, None, verdict, why, hint)
