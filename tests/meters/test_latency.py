"""Timing against a clock and accelerators that the tests own."""

import gc
import random
from dataclasses import replace

import pytest
import torch

from effaudit.meters import _load, _turns, energy, latency, memory
from effaudit.meters._instruments import Instruments
from effaudit.profile_spec import AuditSpec
from tests.fakes import FakeAccelerator, FakeClock, FakeCounter, batch, workload

SPEC = AuditSpec(rounds=2, max_seconds=20)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    monkeypatch.setattr(_load.LoadWatch, "read", lambda self: _load.Load(0.0, 0.0, None))
    monkeypatch.setattr(latency.device, "governor", lambda: None)


def by_name(findings):
    return {m.name: m for m in findings.measurements}


def measure(works, clock, spec=SPEC):
    sleep = getattr(clock, "sleep", lambda _: None)
    return [by_name(found) for found in latency.measure(works, spec, clock, sleep)]


def test_seconds_are_seconds():
    clock = FakeClock()
    stream = [batch(4, 8, n_real=6)] * 3
    (found,) = measure([workload(lambda _: clock.advance(0.05), stream)], clock)
    assert found["latency.p50"].value == pytest.approx(0.05)
    assert found["latency.p99"].value == pytest.approx(0.05)
    assert found["latency.p50"].unit == "s"
    assert found["throughput.examples"].value == pytest.approx(4 / 0.05)
    assert found["throughput.tokens"].value == pytest.approx(4 * 6 / 0.05)  # padding excluded
    assert min(found["latency.p50"].samples) > 0
    assert not found["latency.p50"].cautions


def test_first_call_is_apart_and_each_shape_is_warmed():
    clock = FakeClock()
    seen: dict[int, int] = {}

    def act(b):
        length = b.tokens.shape[1]
        seen[length] = seen.get(length, 0) + 1
        clock.advance(1.0 if seen[length] == 1 else 0.005)

    (found,) = measure([workload(act, [batch(2, n) for n in (4, 5, 6)])], clock)
    assert found["latency.first"].value == pytest.approx(1.0)
    assert found["latency.p50"].value == pytest.approx(0.005)
    assert max(found["latency.p50"].samples) == pytest.approx(0.005)


@pytest.mark.parametrize("warming_s", [[1.0], [1.0, 0.5, 0.25], [0.9, 0.4, 0.4, 0.1], [0.2, 0.1, 0.05, 0.025, 0.01]])
def test_the_warm_up_lasts_until_a_shape_gets_no_faster(warming_s):
    """Graphs, autotuning and clocks that rise take more than one run."""
    clock = FakeClock()
    runs = iter([*warming_s, *[0.005] * 10_000])
    (found,) = measure([workload(lambda _: clock.advance(next(runs)))], clock, AuditSpec(max_seconds=20))
    assert found["latency.first"].value == pytest.approx(warming_s[0])
    assert max(found["latency.p50"].samples) == pytest.approx(0.005)


def test_a_warm_up_that_never_ends_is_bounded():
    clock = FakeClock()
    work = workload(lambda _: clock.advance(max(0.001, 2.0 - clock.now / 1000)), [batch(1, n) for n in range(1, 5)])
    start = clock.now
    measure([work], clock, AuditSpec(rounds=2, max_seconds=20))
    assert clock.now - start < 20 * (1 + _turns.WARMUP_SHARE) + 20


def test_first_is_the_models_first_batch_or_says_that_it_is_not():
    clock = FakeClock()
    work = workload(lambda _: clock.advance(0.01))
    assert work.is_cold
    (cold,) = measure([work], clock)
    (again,) = measure([work], clock)
    assert cold["latency.first"].method.startswith("first batch that the model ran")
    assert "had run before" in again["latency.first"].method


def test_the_device_is_waited_for_before_start_and_before_stop(monkeypatch):
    """Work is queued at once and done only when waited for, as on an accelerator."""
    clock = FakeClock()
    gpu = FakeAccelerator(clock).install(monkeypatch)
    works = [workload(lambda _, s=s: gpu.launch(s), device=gpu.device) for s in (0.2, 0.01)]
    slow, fast = measure(works, clock)
    for found, seconds in ((slow, 0.2), (fast, 0.01)):
        samples = found["latency.p50"].samples
        assert samples == pytest.approx([seconds] * len(samples))


@pytest.mark.parametrize("kind", ["cuda", "mps", "xpu"])
def test_each_timed_region_begins_and_ends_with_a_wait(monkeypatch, kind):
    clock = FakeClock()
    gpu = FakeAccelerator(clock, kind).install(monkeypatch)
    works = [workload(lambda _: gpu.launch(0.01), [batch()] * 8, device=gpu.device)]
    latency.measure(works, SPEC, gpu.read_clock, lambda _: None)
    regions = ["wait", "clock", "run", "wait", "clock"]
    timed = [event for event in gpu.events if event != "clock"]
    assert timed == ["wait", "run", "wait"] * (len(timed) // 3)
    assert gpu.events[:10] == regions * 2  # the first batch, cold and then warm
    assert gpu.events[-1 - 8 * 5 : -1] == regions * 8  # the last round
    assert gpu.n_waits == 2 * gpu.events.count("run")


def test_models_take_turns_in_alternating_order():
    clock = FakeClock()
    ran: list[str] = []

    def act_as(name):
        def act(_):
            ran.append(name)
            clock.advance(0.01)

        return act

    works = [workload(act_as(name), [batch(), batch()], name=name) for name in "ABC"]
    found = measure(works, clock)
    timed = ran[-3 * len(found[0]["latency.p50"].samples) :]
    assert "".join(timed[:12]) == "ABCCBACBAABC"  # each batch in both orders
    assert len({len(f["latency.p50"].samples) for f in found}) == 1


def test_steady_times_stop_early_and_restless_ones_use_the_time_allowed():
    clock = FakeClock()
    (steady,) = measure([workload(lambda _: clock.advance(0.01))], clock)
    assert 100 <= len(steady["latency.p50"].samples) <= 130
    noise = random.Random(0)
    start = clock.now
    work = workload(lambda _: clock.advance(noise.lognormvariate(-4, 0.5)))
    (restless,) = measure([work], clock, AuditSpec(rounds=2, max_seconds=3))
    assert 3 <= clock.now - start <= 3 * (1 + _turns.WARMUP_SHARE) + 2 * _load.LOOK_S + 0.5
    assert [c.code for c in restless["latency.p50"].cautions] == ["unstable"]


def test_batches_of_unlike_size_are_not_noise():
    clock = FakeClock()
    stream = [batch(1, n) for n in (1, 10, 100)]
    (found,) = measure([workload(lambda b: clock.advance(b.tokens.shape[1] / 1000), stream)], clock)
    assert not found["latency.p50"].cautions


def test_slow_models_run_fewer_batches_but_all_rounds():
    clock = FakeClock()
    works = [workload(lambda _: clock.advance(0.5), [batch()] * 16) for _ in range(2)]
    found = measure(works, clock, AuditSpec(rounds=5, max_seconds=20))
    assert len(found[0]["latency.p50"].samples) == 4 * 5
    assert "4 of 16 batches" in found[0]["latency.p50"].method


def test_the_time_allowed_ends_even_the_rounds_that_were_asked_for():
    clock = FakeClock()
    (found,) = measure([workload(lambda _: clock.advance(50.0))], clock, AuditSpec(rounds=5, max_seconds=20))
    assert len(found["latency.p50"].samples) == 2
    assert clock.now - 100 == pytest.approx(4 * 50, abs=1)  # cold, warm, one round in each order
    for name, needed in (("latency.p95", 20), ("latency.p99", 100)):
        assert found[name].value is None
        assert f"too few samples: 2, at least {needed} are needed" in found[name].method


def test_a_clock_that_stands_still_gives_no_zero():
    found = measure([workload(lambda _: None)], lambda: 7.0, AuditSpec(rounds=2, max_seconds=1e-9))[0]
    assert {m.value for m in found.values()} == {None}
    assert found["latency.p50"].method == "the clock did not advance"


def test_a_busy_machine_is_said_with_reason_and_remedy(monkeypatch):
    monkeypatch.setattr(_load.LoadWatch, "read", lambda self: _load.Load(0.6, 0.0, (6.0, 5.0, 4.0), n_cpus=2))
    clock = FakeClock()
    (found,) = measure([workload(lambda _: clock.advance(0.01))], clock)
    (caution,) = found["latency.p50"].cautions
    assert caution.code == "unstable"
    assert "other processes took time of the 2 CPU(s): 1.2 before, 1.2 during, 1.2 after" in caution.text
    assert "load average 6.0" in caution.text
    assert "1 thread(s)" in caution.text
    assert caution.hint == "stop other work, then repeat"
    assert found["throughput.tokens"].cautions == found["latency.first"].cautions == (caution,)


def test_a_clock_that_follows_the_load_is_said(monkeypatch):
    monkeypatch.setattr(latency.device, "governor", lambda: "powersave")
    clock = FakeClock()
    (found,) = measure([workload(lambda _: clock.advance(0.01))], clock)
    (caution,) = found["latency.p50"].cautions
    assert caution.code == "frequency"
    assert "powersave" in caution.text
    assert "performance" in caution.hint


def test_the_governor_is_looked_at_before_and_after(monkeypatch):
    for seen in (["powersave", "performance"], ["performance", "schedutil"]):
        monkeypatch.setattr(latency.device, "governor", iter(seen).__next__)
        clock = FakeClock()
        (found,) = measure([workload(lambda _, clock=clock: clock.advance(0.01))], clock)
        assert [caution.code for caution in found["latency.p50"].cautions] == ["frequency"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_type_without_instructions_is_said(monkeypatch, dtype):
    monkeypatch.setattr(latency.device, "cpu", lambda: ("old CPU", ("avx2",)))
    clock = FakeClock()
    plain = workload(lambda _: clock.advance(0.01))
    found, other = measure([replace(plain, dtype=dtype), plain], clock)
    assert other["latency.p50"].cautions == ()
    assert [c.code for c in found["latency.p50"].cautions] == ["slow_dtype"]
    assert dtype in found["latency.p50"].cautions[0].text


def test_no_collection_inside_timed_regions():
    clock = FakeClock()
    states = []

    def act(_):
        states.append(gc.isenabled())
        clock.advance(0.01)

    measure([workload(act)], clock)
    assert states
    assert not any(states)
    assert gc.isenabled()


def test_threads_are_those_asked_for_and_told():
    clock = FakeClock()
    seen = []

    def act(_):
        seen.append(torch.get_num_threads())
        clock.advance(0.01)

    before = torch.get_num_threads()
    (found,) = measure([workload(act)], clock, AuditSpec(rounds=2, threads=before + 2))
    assert set(seen) == {before + 2}
    assert torch.get_num_threads() == before
    assert f"{before + 2} thread(s)" in found["latency.p50"].method


def test_more_threads_than_cpus_are_said(monkeypatch):
    monkeypatch.setattr(latency.device, "n_cpus", lambda: 2)
    clock = FakeClock()
    for threads, codes in ((2, []), (3, ["threads"])):
        (found,) = measure([workload(lambda _: clock.advance(0.01))], clock, AuditSpec(rounds=2, threads=threads))
        assert [caution.code for caution in found["latency.p50"].cautions] == codes


def test_passes_are_chosen_after_the_first_batch_and_told(monkeypatch):
    runs = []

    def choose(model, of, clock):
        runs.append((len(seen), of.tokens.shape))
        model.tokens_per_pass = 64

    seen = []
    clock = FakeClock()

    def act(b):
        seen.append(b)
        clock.advance(0.05)

    monkeypatch.setattr(latency, "choose_micro_batch", choose)
    (found,) = measure([workload(act, [batch(2, 4), batch(2, 8)])], clock)
    assert runs == [(1, (2, 8))]  # once, on the largest, when the model's first batch was timed
    assert "64 tokens a pass" in found["latency.p50"].method


@pytest.mark.parametrize(("seconds", "n_choices"), [(0.9, 1), (1.1, 0)])
def test_batches_that_take_seconds_stay_whole(monkeypatch, seconds, n_choices):
    """By the first batch: the largest is twice as long."""
    clock, calls = FakeClock(), []
    monkeypatch.setattr(latency, "choose_micro_batch", lambda *_, **__: calls.append(1))
    measure([workload(lambda _: clock.advance(seconds), [batch(2, 4), batch(2, 8)])], clock)
    assert len(calls) == n_choices


def test_a_slow_batch_alone_runs_at_most_twelve_times_in_a_whole_profile():
    """Whatever the limits of time, some passes must be: 30 s + 12 passes is what a profile may take."""
    clock, runs = FakeClock(), []

    def act(_):
        runs.append(1)
        clock.advance(60.0)

    work, spec = workload(act, [batch()]), AuditSpec()
    latency.measure([work], spec, clock, clock.sleep)
    energy.measure([work], spec, clock, clock.sleep, Instruments((FakeCounter(clock),)))
    memory.measure([work], spec)
    assert len(runs) + len(("routing", "quality", "flops")) <= 12
