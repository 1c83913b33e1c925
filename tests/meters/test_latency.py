"""Timing against a clock and an accelerator that the tests own."""

import gc
import random
from dataclasses import replace

import psutil
import pytest
import torch

from effaudit.meters import _load, latency
from effaudit.profile_spec import AuditSpec
from tests.fakes_machine import FakeClock, batch, workload

SPEC = AuditSpec(rounds=2, max_seconds=20)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    monkeypatch.setattr(_load.LoadWatch, "read", lambda self: _load.Load(0.0, 0.0, None))


def by_name(findings):
    return {m.name: m for m in findings.measurements}


def measure(works, clock, spec=SPEC):
    return [by_name(found) for found in latency.measure(works, spec, clock)]


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


def test_the_device_is_waited_for_before_start_and_before_stop(monkeypatch):
    """Work is queued at once and done only when waited for, as on an accelerator."""
    clock = FakeClock()
    queue: list[float] = []

    def synchronize(device):
        clock.advance(sum(queue))
        queue.clear()

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    works = [workload(lambda _, s=s: queue.append(s), device=torch.device("cuda")) for s in (0.2, 0.01)]
    slow, fast = measure(works, clock)
    for found, seconds in ((slow, 0.2), (fast, 0.01)):
        samples = found["latency.p50"].samples
        assert samples == pytest.approx([seconds] * len(samples))


def test_each_timed_region_begins_and_ends_with_a_wait(monkeypatch):
    events: list[str] = []
    clock = FakeClock()

    def noted_clock():
        events.append("clock")
        return clock()

    def act(_):
        events.append("run")
        clock.advance(0.01)

    monkeypatch.setattr(torch.mps, "synchronize", lambda: events.append("wait"))
    measure([workload(act, [batch()] * 8, device=torch.device("mps"))], noted_clock)
    regions = "wait clock run wait clock"
    assert " ".join(events[: 2 * 5]) == f"{regions} {regions}"  # the first batch, cold and warm
    assert " ".join(events[-1 - 8 * 5 : -1]) == " ".join([regions] * 8)  # the last round


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
    assert clock.now - start == pytest.approx(3, rel=0.1)
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


def test_too_few_samples_give_no_tail():
    clock = FakeClock()
    (found,) = measure([workload(lambda _: clock.advance(50.0))], clock)
    assert len(found["latency.p50"].samples) == 2
    for name, needed in (("latency.p95", 20), ("latency.p99", 100)):
        assert found[name].value is None
        assert f"too few samples: 2, at least {needed} are needed" in found[name].method


def test_a_busy_machine_is_said_with_reason_and_remedy(monkeypatch):
    monkeypatch.setattr(_load.LoadWatch, "read", lambda self: _load.Load(0.6, 0.0, (6.0, 5.0, 4.0)))
    monkeypatch.setattr(psutil, "cpu_count", lambda: 2)
    clock = FakeClock()
    (found,) = measure([workload(lambda _: clock.advance(0.01))], clock)
    (caution,) = found["latency.p50"].cautions
    assert caution.code == "unstable"
    assert "other processes used 1.2 of 2 CPUs" in caution.text
    assert "load average 6.0" in caution.text
    assert caution.hint
    assert found["throughput.tokens"].cautions == (caution,)


def test_own_work_is_not_taken_for_others(monkeypatch):
    monkeypatch.undo()
    times = iter([(100.0, 50.0, 0.0), (104.0, 54.0, 2.0)])  # user, idle, steal over 10 CPU-seconds
    fields = psutil.cpu_times()
    zero = dict.fromkeys(fields._fields, 0.0)

    def cpu_times():
        user, idle, steal = next(times)
        return type(fields)(**{**zero, "user": user, "idle": idle, "steal": steal})

    monkeypatch.setattr(psutil, "cpu_times", cpu_times)
    monkeypatch.setattr(_load.time, "process_time", iter([1.0, 4.0]).__next__)
    load = _load.LoadWatch().read()
    assert load.others == pytest.approx(0.1)  # 4 s used, 3 of them ours
    assert load.steal == pytest.approx(0.2)
    assert "hypervisor" in load.cautions(1)[0].text


def test_bfloat16_without_instructions_is_said(monkeypatch):
    monkeypatch.setattr(latency.device, "has_fast_bf16", lambda device: False)
    clock = FakeClock()
    plain = workload(lambda _: clock.advance(0.01))
    found, other = measure([replace(plain, dtype="bfloat16"), plain], clock)
    assert [c.code for c in found["latency.p50"].cautions] == ["slow_dtype"]
    assert other["latency.p50"].cautions == ()


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
