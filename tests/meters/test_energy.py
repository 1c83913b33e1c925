"""Energy of a pass against a machine whose power the tests set."""

import gc
import os
import random
import re
import signal
import threading

import psutil
import pytest
import torch

from effaudit import stats
from effaudit.errors import EffauditError
from effaudit.meters import _codecarbon, _load, _nvml, energy, latency, memory
from effaudit.meters._instruments import Instruments
from effaudit.profile_spec import AuditSpec
from tests.fakes import FakeClock, FakeCounter, batch, nvml, workload

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
    assert "window of 4." in found["energy.gross"].method  # two turns of 20 ticks


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
    assert clock.now - start <= 2 + 1 + 2 + 0.5  # idle, first batch, the turns, a look at the load


def test_a_model_slower_than_the_window_has_one_turn():
    clock = FakeClock()
    works = [workload(lambda _, s=s: clock.advance(s, LOAD_W), name=str(s)) for s in (30.0, 0.1)]
    slow, quick = measure(works, clock, [FakeCounter(clock, tick_s=0.001)])
    assert slow["energy.gross"].value == pytest.approx(30 * LOAD_W, rel=0.01)
    assert re.search(r"turn \d of 3, order drawn", slow["energy.gross"].method)
    assert re.search(r"turns \d and \d of 3, order drawn", quick["energy.gross"].method)
    assert clock.now - 100 == pytest.approx(2 + 30 + 30 + 2, abs=2)  # idle, warm-up, one turn, the quick one's turns


def test_a_modelled_window_is_two_seconds_and_has_no_ticks():
    clock = FakeClock()
    cpu = _codecarbon.Processor(8.0, 2, "model", cpu_time=clock)
    (found,) = measure([workload(lambda _: clock.advance(0.01))], clock, [cpu])
    assert "window of 2.0" in found["energy.gross"].method
    assert found["energy.gross"].value == pytest.approx(4 * 0.01)


def test_the_models_own_start_is_in_no_window(monkeypatch):
    """Looking up codecarbon's tables takes seconds of CPU time."""
    clock = FakeClock()
    cpu = _codecarbon.Processor(8.0, 2, "model", cpu_time=clock)

    def find(*_):
        clock.advance(5.0)
        return Instruments((cpu,))

    monkeypatch.setattr(energy, "find_instruments", find)
    (found,) = energy.measure([workload(lambda _: clock.advance(0.01))], AuditSpec(), clock, clock.sleep)
    assert by_name(found)["energy.gross"].value == pytest.approx(4 * 0.01)
    assert "window of 2.0" in by_name(found)["energy.gross"].method


def test_a_forward_that_is_held_up_leaves_no_part_too_short():
    """Most of a turn passes in one forward; what is left is not cut into parts within a tick."""
    clock = FakeClock()
    n_calls = []

    def act(_):
        n_calls.append(1)
        clock.advance(1.3 if len(n_calls) == 10 else 0.001, LOAD_W)

    (found,) = measure([workload(act)], clock, [FakeCounter(clock, tick_s=0.1)])
    assert found["energy.gross"].source == "measured"
    assert len(found["energy.gross"].samples) >= stats.MIN_INTERVAL_SAMPLES


class Stuck(FakeCounter):
    def read(self) -> float:
        return 7.0


def test_a_counter_that_does_not_move_is_null_with_the_reason():
    clock = FakeClock()
    (found,) = measure([workload(lambda _: clock.advance(0.1, LOAD_W))], clock, [FakeCounter(clock), Stuck(clock)])
    for name in ("energy.gross", "energy.net", "emissions"):
        assert found[name].value is None
        assert "window too short" in found[name].method


def test_a_counter_slower_than_thought_is_null_too():
    """Said to tick each millisecond, it does so each second."""
    clock = FakeClock()
    counter = FakeCounter(clock, tick_s=1.0)
    claimed = Instruments((Claiming(clock, counter),))
    work = workload(lambda _: clock.advance(0.01, LOAD_W))
    found = by_name(energy.measure([work], AuditSpec(), clock, clock.sleep, claimed)[0])
    assert found["energy.gross"].value is None
    assert "did not move in a part of" in found["energy.gross"].method


class Claiming(FakeCounter):
    """Another counter's readings under a tick of 1 ms."""

    def __init__(self, clock: FakeClock, real: FakeCounter) -> None:
        super().__init__(clock, 0.001)
        self.real = real

    def read(self) -> float:
        return self.real.read()


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
    told = "package-0 3 J (50%): fake counter; dram of package-0 3 J (50%): fake counter"
    assert told in found["energy.gross"].method


def test_each_part_has_a_figure_of_its_own_or_a_reason():
    clock = FakeClock()
    sources = [FakeCounter(clock, 0.001, "gpu-0", part="gpu"), _codecarbon.Processor(8.0, 2, "model", cpu_time=clock)]
    (found,) = measure([workload(lambda _: clock.advance(0.1, LOAD_W))], clock, sources)
    assert found["energy.gpu"].value == pytest.approx(3, rel=0.01)
    assert found["energy.gpu"].source == "measured"  # though the sum is not
    assert found["energy.cpu"].value == pytest.approx(0.4)
    assert found["energy.cpu"].source == found["energy.gross"].source == "modelled"
    assert found["energy.ram"].value is None
    assert "no DRAM counter" in found["energy.ram"].method
    assert found["energy.gross"].value == pytest.approx(3.4, rel=0.01)


def test_a_cpu_alone_has_its_sum_and_no_gpu():
    clock = FakeClock()
    sources = [FakeCounter(clock, 0.001, "package-0"), FakeCounter(clock, 0.001, "dram of package-0", part="ram")]
    (found,) = measure([workload(lambda _: clock.advance(0.1, LOAD_W))], clock, sources)
    assert found["energy.gross"].value == pytest.approx(found["energy.cpu"].value + found["energy.ram"].value)
    assert found["energy.gpu"].value is None


def test_the_same_figures_with_and_without_a_gpu_and_without_anything():
    clock = FakeClock()
    work = workload(lambda _: clock.advance(0.1, LOAD_W))
    names = [list(measure([work], clock, [FakeCounter(clock, 0.001, part=part)])[0]) for part in ("cpu", "gpu")]
    nothing = energy.measure([work], AuditSpec(), instruments=Instruments((), "nothing here"))
    assert names[0] == names[1] == list(by_name(nothing[0]))


def test_idle_power_and_its_spread_are_kept():
    clock = FakeClock()
    (found,) = measure([workload(lambda _: clock.advance(0.1, LOAD_W))], clock, [FakeCounter(clock, 0.001)])
    idle = found["energy.idle_power"]
    assert idle.unit == "W"
    assert idle.value == pytest.approx(10)
    assert len(idle.samples) == 4
    assert "10 W before (" in idle.method


def test_there_are_samples_enough_for_an_interval():
    clock = FakeClock()
    (found,) = measure([workload(lambda _: clock.advance(0.01, LOAD_W))], clock, [FakeCounter(clock, 0.001)])
    for name in ("energy.gross", "energy.net", "energy.cpu"):
        assert stats.median_interval(found[name].samples) is not None


def test_sampled_power_gives_the_energy_of_the_window(monkeypatch):
    clock = FakeClock()
    watts = lambda: LOAD_W if clock.drawn_j > 20 else 10.0  # noqa: E731 - idle draws 20 J first
    monkeypatch.setattr(_nvml, "SAMPLING_S", 100.0)  # the clock is ours, so no thread reads it
    power = _nvml.Power(nvml(1, has_counter=False, power_w=watts), 0, "gpu-0", clock)
    before = threading.enumerate()
    (found,) = measure([workload(lambda _: clock.advance(0.1, LOAD_W))], clock, [power])
    assert found["energy.gpu"].value == pytest.approx(3, rel=0.05)
    assert "NVML power, sampled" in found["energy.gpu"].method
    assert threading.enumerate() == before


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
    turns = {re.search(r"turns (\d and \d) of 6, order drawn at random", f["energy.gross"].method)[1] for f in forward}
    assert turns == {"1 and 6", "2 and 5", "3 and 4"}


def test_the_order_is_drawn_anew_each_time():
    clock = FakeClock()
    works = [workload(lambda _: clock.advance(0.1, LOAD_W), name=str(i)) for i in range(8)]
    orders = set()
    for _ in range(4):
        found = measure(works, clock, [FakeCounter(clock, 0.001)])
        orders.add(tuple(f["energy.gross"].method.rpartition(" of 16")[0].rpartition("turns ")[2] for f in found))
    assert len(orders) > 1  # four equal draws of 8! would be a wonder


def test_a_machine_that_warms_up_favours_no_model():
    """Each joule costs a tenth more after each second: the ranking is that of the work, in either order."""
    for names in (("light", "heavy"), ("heavy", "light")):
        clock = FakeClock()

        def act(name, clock=clock):
            warmth = 1 + (clock.now - 100) / 10
            return lambda _: clock.advance(0.05, LOAD_W * warmth * {"light": 1.0, "heavy": 1.2}[name])

        works = [workload(lambda b, n=n, act=act: act(n)(b), name=n) for n in names]
        found = dict(zip(names, measure(works, clock, [FakeCounter(clock, 0.001)]), strict=True))
        ratio = found["heavy"]["energy.gross"].value / found["light"]["energy.gross"].value
        assert ratio == pytest.approx(1.2, rel=0.03)


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
        "latency": lambda: latency.measure([work], spec, clock, clock.sleep),
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
