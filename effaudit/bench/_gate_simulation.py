"""How often the gate's verdicts on time are right: recorded rounds drawn again, in sessions, with an effect added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import log1p

import numpy as np

from effaudit.against.sequential import SequentialTest
from effaudit.against.session import MIN_ROUNDS

BLOCK = 8  # rounds that are drawn together, as what disturbs one often disturbs the next


@dataclass(frozen=True)
class Recorded:
    """A session of equal sides: log ratios of its rounds (none where no CPU was free), and what it took."""

    log_ratios: tuple[float, ...]
    seconds: float


@dataclass(frozen=True)
class Scenario:
    """So much slower is the second side, and so much time there is."""

    name: str
    effect: float
    max_seconds: float


def simulate(sessions: Sequence[Recorded], scenario: Scenario, tolerance: float, n: int, seed: int = 0) -> Counter[str]:
    """How many of `n` simulated runs end with which verdict."""
    random = np.random.default_rng(seed)
    return Counter(_run(sessions, scenario, tolerance, random) for _ in range(n))


def _run(sessions: Sequence[Recorded], scenario: Scenario, tolerance: float, random: np.random.Generator) -> str:
    """As a race: a session of base against base first, then sessions while another still fits."""
    test = SequentialTest(tolerance)
    elapsed = took = _drawn(sessions, random).seconds
    while elapsed + took <= scenario.max_seconds:
        session = _drawn(sessions, random)
        elapsed, took = elapsed + session.seconds, session.seconds
        if len(session.log_ratios) < MIN_ROUNDS:
            continue
        sign = 1 if random.random() < 0.5 else -1  # the sides are equal: either could have been the second
        test.add(sign * float(np.median(_redrawn(session, random))) + log1p(scenario.effect))
        look = test.look(elapsed / scenario.max_seconds)
        if look is not None and look.finding is not None:
            return look.finding
    last = test.look(1.0, is_last=True)
    return (last.finding if last else None) or "undecided"


def _drawn(sessions: Sequence[Recorded], random: np.random.Generator) -> Recorded:
    return sessions[int(random.integers(len(sessions)))]


def _redrawn(session: Recorded, random: np.random.Generator) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """As many rounds again, in blocks that wrap around."""
    values = np.asarray(session.log_ratios)
    starts = random.integers(len(values), size=-(-len(values) // BLOCK))
    places = (starts[:, None] + np.arange(BLOCK)).ravel()[: len(values)] % len(values)
    drawn: np.ndarray[tuple[int], np.dtype[np.float64]] = values[places]
    return drawn
