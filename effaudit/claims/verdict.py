"""Whether a claim holds: a figure with its interval against the bounds that the claim sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from effaudit.claims.evidence import MIN_SEEDS, Estimate

Verdict = Literal["holds", "does not hold", "cannot be told"]
NOT_AUDITED = "not audited yet"
ALL = float("inf")


@dataclass(frozen=True)
class Finding:
    """One row: what was claimed where, the figure by the claim's own definition and by ours, and the verdict on ours.

    `theirs` and `ours` say what they are figures of; None for a figure that there is not, `reason` then says why.
    """

    subject: str  # the model and its data
    claim: str
    source: str
    theirs: str | None
    ours: str | None
    n_seeds: int
    verdict: Verdict
    reason: str


@dataclass(frozen=True)
class Bounds:
    """Between which figures a claim is true."""

    low: float = -ALL
    high: float = ALL

    def judge(self, estimate: Estimate | None, missing: str = NOT_AUDITED) -> tuple[Verdict, str]:
        """The verdict, and why it is one or why it cannot be had."""
        if estimate is None:
            return "cannot be told", missing
        if estimate.n < MIN_SEEDS or estimate.interval is None:
            return "cannot be told", f"{estimate.n} of at least {MIN_SEEDS} seeds so far"
        low, high = estimate.interval
        if self.low <= low and high <= self.high:
            return "holds", ""
        if high < self.low or self.high < low:
            return "does not hold", ""
        return "cannot be told", "the interval reaches to both sides of what is claimed"


def finding(
    subject: str,
    claim: str,
    source: str,
    bounds: Bounds,
    ours: tuple[str, Estimate | None],
    theirs: tuple[str, Estimate | None] | None = None,
    note: str = "",
    missing: str = NOT_AUDITED,
) -> Finding:
    """A row from figures and what they are figures of; `note` is added to the reason."""
    verdict, reason = bounds.judge(ours[1], missing)
    return Finding(
        subject=subject,
        claim=claim,
        source=source,
        theirs=None if theirs is None else _told(*theirs),
        ours=_told(*ours),
        n_seeds=0 if ours[1] is None else ours[1].n,
        verdict=verdict,
        reason="; ".join(part for part in (reason, note) if part),
    )


def _told(what: str, estimate: Estimate | None) -> str | None:
    return None if estimate is None else f"{what}: {estimate}"
