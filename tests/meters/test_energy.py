"""Energy of a pass against a machine whose power the tests set."""

import gc
import os
import random
import signal
import threading

import psutil
import pytest
import torch

from effaudit.errors import EffauditError
from effaudit.meters import _codecarbon, _load, energy, latency, memory
from effaudit.meters._instruments import Instruments
from effaudit.profile_spec import AuditSpec
from tests.fakes_machine import FakeClock, FakeCounter, batch, workload

LOAD_W = 30.0  # idle is 10 W


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    monkeypatch.setattr(_load.LoadWatch, "read", lambda self: _load.Load(0.0, 0.0, None))


def by_name(findings):
    return {m.name: m for m in findings.measurements}


def measure(works, clock, sources, **settings):
    tools = Instruments(tuple(sources))
    return [by_name(f) for f in energy.measure(works, AuditSpec(**settings), clock, clock.sleep, tools)]


def test_idle_is_taken_off_and_both_are_shown():
    clock = FakeClock()
    work = workload(lambda _: clock.advance(2.5, LOAD_W), [batch()] * 4)  # a pass takes 10 s
    counter = FakeCounter(clock, tick_s=0.5)
    (found,) = measure([work], clock, [counter], energy_window_s=20)
    assert found["energy.gross"].value == pytest.approx(300)
    assert found["energy.net"].value == pytest.approx(200)
    assert found["energy.gross"].source == found["energy.net"].source == "measured"
    assert "idle power 10 W" in found["energy.net"].method
    assert found["emissions"].value is None
    assert "--country" in found["emissions"].method


@pytest.mark.parametrize("forward_s", [0.0007, 0.02, 0.3])
def test_slow_counters_never_read_zero(forward_s):
    clock = FakeClock()
    work = workload(lambda _: clock.advance(forward_s, LOAD_W))
    (found,) = measure([work], clock, [FakeCounter(clock, tick_s=0.1)], energy_window_s=0.02)
    assert found["energy.gross"].value == pytest.approx(LOAD_W * forward_s, rel=0.06)  # 20 ticks: 5 %
    assert "window of 2." in found["energy.gross"].method


def test_ten_times_the_work_is_ten_times_the_energy():
    clock = FakeClock()
    works = [workload(lambda _, s=s: clock.advance(s, LOAD_W)) for s in (0.01, 0.1)]
    small, large = measure(works, clock, [FakeCounter(clock, tick_s=0.001)])
    assert large["energy.gross"].value / small["energy.gross"].value == pytest.approx(10, rel=0.01)


def test_the_window_stands_for_the_whole_stream():
    clock = FakeClock()
    work = workload(lambda b: clock.advance(b.tokens.numel() / 1000, LOAD_W), [batch(1, 10)] * 100)
    (found,) = measure([work], clock, [FakeCounter(clock, tick_s=0.001)])
    assert found["energy.gross"].value == pytest.approx(LOAD_W * 1.0, rel=0.01)
    assert "of 100 batches, spread evenly" in found["energy.gross"].method


def test_a_slow_model_does_not_stretch_its_window():
    clock = FakeClock()
    work = workload(lambda _: clock.advance(1.0, LOAD_W), [batch()] * 16)
    start = clock.now
    (found,) = measure([work], clock, [FakeCounter(clock, tick_s=0.001)], energy_window_s=2)
    assert found["energy.gross"].value == pytest.approx(16 * LOAD_W, rel=0.01)
    assert clock.now - start <= 2 + 2 + 2 + 2  # idle, first batch twice, one warm cycle, the window


class Stuck(FakeCounter):
    def read(self) -> float:
        return 7.0


def test_a_counter_that_does_not_move_is_null_with_the_reason():
    clock = FakeClock()
    (found,) = measure([workload(lambda _: clock.advance(0.1, LOAD_W))], clock, [FakeCounter(clock), Stuck(clock)])
    for name in ("energy.gross", "energy.net", "emissions"):
        assert found[name].value is None
        assert "window too short" in found[name].method


class Failing(FakeCounter):
    def read(self) -> float:
        if self.clock.now > 101:
            raise OSError("device lost")
        return super().read()


def test_a_counter_lost_on_the_way_is_null_with_the_reason():
    clock = FakeClock()
    (found,) = measure([workload(lambda _: clock.advance(0.1))], clock, [Failing(clock)])
    assert found["energy.gross"].value is None
    assert "device lost" in found["energy.gross"].method


def test_a_machine_that_was_not_idle_has_no_net():
    clock = FakeClock(idle_w=50.0)
    (found,) = measure([workload(lambda _: clock.advance(0.1, LOAD_W))], clock, [FakeCounter(clock)])
    assert found["energy.gross"].value == pytest.approx(3, rel=0.06)
    assert found["energy.net"].value is None
    assert "was not idle" in found["energy.net"].method


def test_domains_are_summed_and_each_is_shown():
    clock = FakeClock()
    sources = [FakeCounter(clock, 0.001, "package-0"), FakeCounter(clock, 0.001, "dram of package-0")]
    (found,) = measure([workload(lambda _: clock.advance(0.1, LOAD_W))], clock, sources)
    assert found["energy.gross"].value == pytest.approx(2 * 3, rel=0.01)
    assert "package-0 3 J (fake counter); dram of package-0 3 J (fake counter)" in found["energy.gross"].method


def test_one_modelled_domain_makes_the_figure_modelled_and_a_constant_is_said():
    clock = FakeClock()
    cpu = _codecarbon.Processor(8.0, 2, "model", cpu_time=clock)
    sources = [cpu, _codecarbon.Ram(20.0, "model", clock)]
    (found,) = measure([workload(lambda _: clock.advance(0.1))], clock, sources, intensity=100)
    gross = found["energy.gross"]
    assert gross.source == found["emissions"].source == "modelled"
    assert gross.value == pytest.approx((8 / 2 + 20) * 0.1)
    assert "mostly_constant" in [caution.code for caution in gross.cautions]
    (mixed,) = measure([workload(lambda _: clock.advance(0.1, 90.0))], clock, [FakeCounter(clock), cpu])
    assert mixed["energy.gross"].source == "modelled"


def test_emissions_are_gross_times_intensity_times_pue():
    clock = FakeClock()
    work = workload(lambda _: clock.advance(0.1, LOAD_W))
    (found,) = measure([work], clock, [FakeCounter(clock)], intensity=100, pue=1.5)
    assert found["emissions"].value == pytest.approx(found["energy.gross"].value / 3.6e6 * 100 * 1.5)
    assert found["emissions"].unit == "g"
    (found,) = measure([work], clock, [FakeCounter(clock)], country="world")
    assert [caution.code for caution in found["emissions"].cautions] == ["world_average"]
    with pytest.raises(EffauditError, match="no carbon intensity for country"):
        measure([work], clock, [FakeCounter(clock)], country="QQQ")


def test_order_is_random_recorded_and_does_not_change_the_figures():
    clock = FakeClock()
    works = [workload(lambda _, s=s: clock.advance(s, LOAD_W), name=str(s)) for s in (0.1, 0.2, 0.3)]
    forward = measure(works, clock, [FakeCounter(clock, 0.001)])
    backward = measure(works[::-1], clock, [FakeCounter(clock, 0.001)])
    values = [f["energy.gross"].value for f in forward]
    assert values == pytest.approx([f["energy.gross"].value for f in backward[::-1]], rel=0.01)
    assert values == pytest.approx([3, 6, 9], rel=0.01)
    turns = {f["energy.gross"].method.rpartition("turn ")[2] for f in forward}
    assert turns == {f"{i} of 3 in random order" for i in (1, 2, 3)}


def test_without_a_source_everything_is_null_with_the_reason():
    found = energy.measure([workload(lambda _: None)], AuditSpec(), instruments=Instruments((), "nothing here"))
    assert {m.value for m in found[0].measurements} == {None}
    assert "nothing here" in found[0].measurements[2].method


def state(models):
    return (
        torch.get_num_threads(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_rng_state().tolist(),
        random.getstate(),
        gc.isenabled(),
        signal.getsignal(signal.SIGINT),
        signal.getsignal(signal.SIGTERM),
        dict(os.environ),
        threading.enumerate(),
        len(psutil.Process().open_files()),
        [m.training for model in models for m in model.modules()],
        [list(model.state_dict()) for model in models],
    )


@pytest.mark.parametrize("is_failing", [False, True])
@pytest.mark.parametrize("name", ["latency", "memory", "energy"])
def test_no_meter_leaves_a_trace(name, is_failing):
    clock = FakeClock()
    n_calls = []

    def act(_):
        clock.advance(0.1, LOAD_W)
        n_calls.append(1)
        if is_failing and len(n_calls) > 1:
            raise RuntimeError("broken model")

    spec = AuditSpec(threads=3)
    work = workload(act)
    run = {
        "latency": lambda: latency.measure([work], spec, clock),
        "memory": lambda: memory.measure([work], spec),
        "energy": lambda: energy.measure([work], spec, clock, clock.sleep, Instruments((FakeCounter(clock),))),
    }[name]
    before = state([work.model])
    if is_failing:
        with pytest.raises(RuntimeError, match="broken model"):
            run()
    else:
        run()
    assert n_calls
    assert state([work.model]) == before
