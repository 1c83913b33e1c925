"""What skipping costs is timed once for each size of batch, before `auto` chooses by it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from effaudit import break_even
from effaudit.break_even import ROUNDS, calibrate, calibrate_on
from effaudit.workload import Batch
from tests import makers
from tests.fakes import workload


def work_of(variant: str, task: Any, batches: list[Batch], **options: Any) -> Any:
    model = makers.build(makers.config(variant, task, {"execution": "auto", **options}))
    return replace(workload(model, batches), task=task)


def clock(seconds: list[float]) -> Any:
    """Reads twice a run; runs take these seconds in turns."""

    def ticks() -> Iterator[float]:
        now = 0.0
        while True:
            for each in seconds:
                yield now
                now += each
                yield now

    times = ticks()
    return lambda: next(times)


def test_each_size_is_timed_once() -> None:
    sizes = [(5, 5, 5), (5, 5, 4), (2,)]
    work = work_of("tsa", "causal_lm", [makers.batch("causal_lm", lengths) for lengths in sizes])
    calibrate(work, clock([1.0, 0.5, 1.1]))  # masked, a quarter, three quarters
    costs = work.model.policy.costs
    assert set(costs) == {work.model.policy.size(15), work.model.policy.size(2)}
    assert all(cost.is_skipping(0.66, 0) and not cost.is_skipping(0.67, 0) for cost in costs.values())
    calibrate(work, clock([9.0]))
    assert work.model.policy.costs == costs


def test_the_fastest_round_counts() -> None:
    work = work_of("tsa", "causal_lm", [makers.batch("causal_lm", (5, 5, 5))])
    calibrate(work, clock([3.0, 5.0, 9.0, *[1.0, 0.5, 1.1] * (ROUNDS - 1)]))
    (cost,) = work.model.policy.costs.values()
    assert cost.masked == 1.0


def test_the_device_is_waited_for_before_and_after_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    work = work_of("tsa", "causal_lm", [makers.batch("causal_lm", (5, 5, 5))])
    said: list[str] = []
    monkeypatch.setattr(break_even.device, "synchronize", lambda device: said.append("wait"))
    calibrate_on(work.model, work.batches(), lambda: said.append("clock") or float(len(said)))  # type: ignore[func-returns-value]
    assert said == ["wait", "clock", "wait", "clock"] * 3 * ROUNDS  # one masked, two that skip


def test_examples_that_leave_cost_nothing_either_way() -> None:
    work = work_of("early_exit", "classification", [makers.batch()])
    calibrate(work, clock([1.0]))
    assert work.model.policy.costs == {}


def test_other_executions_are_left_alone() -> None:
    work = work_of("tsa", "causal_lm", [makers.batch("causal_lm")], execution="skip")
    calibrate(work, clock([]))
    assert work.model.policy is None
