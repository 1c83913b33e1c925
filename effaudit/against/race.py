"""Which side is faster: sessions of fresh processes until every model is decided, or the time is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from effaudit.against.processes import Side
from effaudit.against.sequential import ALPHA, Look, SequentialTest
from effaudit.against.session import Clock, Session, Timing

BUSY = 0.5  # share of interrupted runs from which on there is no free CPU

Progress = Callable[[float], None]  # told the seconds that are over


@dataclass
class Duel:
    """One model on both sides: its test, and the medians of its turns."""

    test: SequentialTest
    first_s: list[float] = field(default_factory=list)
    second_s: list[float] = field(default_factory=list)
    look: Look | None = None

    @property
    def is_decided(self) -> bool:
        return self.look is not None and self.look.finding is not None

    def add(self, session: Session, name: str) -> bool:
        """Takes over what a session found about the model; False where that was too little."""
        rounds = session.rounds[name]
        if rounds.log_ratio is None:
            return False
        self.test.add(rounds.log_ratio)
        self.first_s += rounds.first_s
        self.second_s += rounds.second_s
        return True

    def last_look(self) -> None:
        if not self.is_decided:
            self.look = self.test.look(1.0, is_last=True) or self.look


@dataclass(frozen=True)
class Outcome:
    """Of every model that both sides have, its duel; `noise` is a round's, base against base.

    `obstacle` says why it ended before its time, if it did.
    """

    duels: dict[str, Duel]
    noise: dict[str, float]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    n_sessions: int
    n_busy: int
    seconds: float
    obstacle: str = ""


@dataclass
class _Race:
    base: Side
    current: Side
    tolerance: float
    max_seconds: float
    progress: Progress
    clock: Clock
    start: float
    duels: dict[str, Duel] = field(default_factory=dict)
    noise: dict[str, float] = field(default_factory=dict)
    lone: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    n_sessions: int = 0
    n_busy: int = 0

    @property
    def elapsed(self) -> float:
        return self.clock() - self.start

    def run(self) -> Outcome:
        obstacle = ""
        try:
            obstacle = self._look_at_noise() or self._hold_sessions()
        except TimeoutError as error:
            obstacle = str(error)
        for duel in self.duels.values():
            duel.last_look()
        return Outcome(self.duels, self.noise, *self.lone, self.n_sessions, self.n_busy, self.elapsed, obstacle)

    def _timing(self) -> Timing:
        return Timing(self.start + self.max_seconds, self.tolerance, self.clock)

    def _look_at_noise(self) -> str:
        """The base against itself: what a round varies by where nothing differs; the reason to go no further."""
        session = self._timing().session(self.base, self.base, 0)
        self.noise = {name: rounds.noise for name, rounds in session.rounds.items()}
        return _no_free_cpu(session)

    def _hold_sessions(self) -> str:
        timing, took_s = self._timing(), 0.0
        while self.elapsed + took_s <= self.max_seconds:
            decided = frozenset(name for name, duel in self.duels.items() if duel.is_decided)
            session = timing.session(self.base, self.current, self.n_sessions, decided)
            took_s = session.seconds
            self._enter(session)
            self.n_sessions += 1
            if session.interrupted > BUSY:
                self.n_busy += 1
            else:
                self._take_over(session)
            self.progress(self.elapsed)
            if all(duel.is_decided for duel in self.duels.values()):
                return ""
        return ""

    def _enter(self, session: Session) -> None:
        """Sets the duels up by what the first session shows."""
        if self.n_sessions:
            return
        first, second = ([model.name for model in side] for side in (session.first, session.second))
        self.lone = (tuple(n for n in first if n not in second), tuple(n for n in second if n not in first))
        common = [name for name in second if name in first]
        self.duels = {name: Duel(SequentialTest(self.tolerance, ALPHA / len(common))) for name in common}

    def _take_over(self, session: Session) -> None:
        for name in session.rounds:
            duel = self.duels[name]
            if duel.add(session, name):
                duel.look = duel.test.look(self.elapsed / self.max_seconds) or duel.look


def race(
    base: Side,
    current: Side,
    tolerance: float,
    max_seconds: float,
    progress: Progress,
    clock: Clock = time.monotonic,
) -> Outcome:
    """Raises EffauditError when a side does not run, or when the sides run different work."""
    return _Race(base, current, tolerance, max_seconds, progress, clock, clock()).run()


def _no_free_cpu(session: Session) -> str:
    if session.interrupted <= BUSY:
        return ""
    return f"no free CPU: {session.interrupted:.0%} of the timed runs were interrupted by other processes"


def median_s(turns: list[float]) -> float | None:
    return float(np.median(turns)) if turns else None
