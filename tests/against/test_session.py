from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import log

import pytest

from effaudit.against import session
from effaudit.against.processes import Side, TimedModel, Turn
from effaudit.against.session import MIN_ROUNDS, Rounds, Timing
from effaudit.errors import EffauditError

BASE, CURRENT = (Side(name, "python", (), ".", "p.yaml") for name in ("base", "current"))


@dataclass
class Machine:
    """Processes without any: a clock, what a run takes by side, and who was asked for what."""

    run_s: dict[str, float]
    start_s: float = 2.0
    waited: float = 0.0
    batches: tuple[str, ...] = ("a", "b")
    models: dict[str, tuple[str, ...]] = field(default_factory=lambda: {"base": ("dense",), "current": ("dense",)})
    now: float = 0.0
    log: list[str] = field(default_factory=list)
    wobble: Callable[[int], float] = lambda n: 1.0

    def clock(self) -> float:
        return self.now


class FakeWorker:
    def __init__(self, machine: Machine, side: Side) -> None:
        self.machine, self.side = machine, side

    def models(self, limit_s: float) -> tuple[TimedModel, ...]:
        self.machine.now += self.machine.start_s / 2
        names = self.machine.models[self.side.name]
        batches = self.machine.batches if self.side is CURRENT else ("a", "b")
        return tuple(TimedModel(name, batches, 0.02, True) for name in names)

    def turn(self, model: int, batch: int, n: int, cpu: int | None, limit_s: float) -> Turn:
        machine = self.machine
        seconds = machine.run_s[self.side.name] * machine.wobble(len(machine.log))
        machine.log.append(f"{self.side.name} {model} {batch} x{n}")
        machine.now += seconds * (n + 1)
        return Turn((seconds,) * n, (seconds * machine.waited,) * n)


@pytest.fixture
def timing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Machine, Timing]]:
    def make(deadline: float = 1000.0, tolerance: float = 0.01, **changes: object) -> tuple[Machine, Timing]:
        machine = Machine(**{"run_s": {"base": 0.02, "current": 0.021}, **changes})  # type: ignore[arg-type]

        @contextmanager
        def started(sides: Sequence[Side]) -> Iterator[list[FakeWorker]]:
            machine.log += [f"start {side.name}" for side in sides]
            yield [FakeWorker(machine, side) for side in sides]

        monkeypatch.setattr(session, "started", started)
        return machine, Timing(deadline, tolerance, machine.clock)

    return make


def test_rounds_turn_the_order_and_go_through_the_batches(timing: Callable[..., tuple[Machine, Timing]]) -> None:
    machine, watch = timing()
    found = watch.session(BASE, CURRENT, 0)
    assert machine.log[:10] == [
        "start base", "start current", "base 0 0 x2", "current 0 0 x2", "current 0 0 x2", "base 0 0 x2",
        "base 0 1 x2", "current 0 1 x2", "current 0 1 x2", "base 0 1 x2",
    ]  # fmt: skip
    assert found.rounds["dense"].log_ratio == pytest.approx(log(1.05))
    assert found.interrupted == 0.0
    machine, watch = timing()
    found = watch.session(BASE, CURRENT, 1)
    assert machine.log[:4] == ["start current", "start base", "current 0 0 x2", "base 0 0 x2"]
    assert found.rounds["dense"].log_ratio == pytest.approx(log(1.05))


def test_a_session_is_over_when_it_is_precise(timing: Callable[..., tuple[Machine, Timing]]) -> None:
    machine, watch = timing()
    found = watch.session(BASE, CURRENT, 0)
    assert len(found.rounds["dense"].log_ratios) == MIN_ROUNDS
    assert found.seconds == pytest.approx(machine.now)


def test_a_noisy_session_is_timed_for_twice_its_start(timing: Callable[..., tuple[Machine, Timing]]) -> None:
    _, watch = timing(start_s=10.0, wobble=lambda n: 1 + 0.1 * (n * 7 % 5))
    found = watch.session(BASE, CURRENT, 0)
    assert found.seconds == pytest.approx(30.0, abs=0.5)
    _, watch = timing(start_s=0.1, wobble=lambda n: 1 + 0.1 * (n * 7 % 5))
    assert len(watch.session(BASE, CURRENT, 0).rounds["dense"].log_ratios) == MIN_ROUNDS  # at least
    _, watch = timing(deadline=12.0, start_s=10.0, wobble=lambda n: 1 + 0.1 * (n * 7 % 5))
    assert watch.session(BASE, CURRENT, 0).seconds == pytest.approx(12.0, abs=0.5)


def test_runs_that_waited_for_a_cpu_leave_no_round(timing: Callable[..., tuple[Machine, Timing]]) -> None:
    _, watch = timing(waited=0.5)
    found = watch.session(BASE, CURRENT, 0)
    assert found.rounds["dense"].log_ratio is None
    assert found.interrupted == 1.0


def test_models_of_both_sides_are_paired_by_name(timing: Callable[..., tuple[Machine, Timing]]) -> None:
    machine, watch = timing(models={"base": ("dense", "tsa", "gone"), "current": ("new", "tsa", "dense")})
    found = watch.session(BASE, CURRENT, 0)
    assert list(found.rounds) == ["tsa", "dense"]
    assert machine.log[2:6] == ["base 1 0 x2", "current 1 0 x2", "base 0 0 x2", "current 2 0 x2"]
    assert list(watch.session(BASE, CURRENT, 0, frozenset({"tsa"})).rounds) == ["dense"]


def test_other_batches_are_other_work(timing: Callable[..., tuple[Machine, Timing]]) -> None:
    _, watch = timing(batches=("a", "c"))
    with pytest.raises(EffauditError, match="`dense`, but not on the same batches"):
        watch.session(BASE, CURRENT, 0)


def test_the_noise_of_rounds_is_their_standard_deviation() -> None:
    rounds = Rounds(log_ratios=[-0.02, -0.01, 0.0, 0.01, 0.02])
    assert rounds.noise == pytest.approx(0.02 / 1.349)
    assert rounds.log_ratio is None  # fewer than a session needs
    assert Rounds().noise == 0.0
    assert not Rounds().is_precise(1.0)
