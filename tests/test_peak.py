"""The best rate of this machine, and timings that claim more."""

import pytest
import torch

from effaudit import onednn, peak
from tests.fakes import CPU, FakeAccelerator, FakeClock
from tests.fakes_records import figure

PEAK = 1e11


def test_the_best_product_is_the_peak(monkeypatch):
    """An accelerator that takes 1 ms to start and then does 1 TFLOP/s: the largest size comes closest."""
    clock = FakeClock()
    gpu = FakeAccelerator(clock).install(monkeypatch)
    sizes = []

    class Matrix:
        def __init__(self, n):
            sizes.append(n)
            self.n = n

        def __matmul__(self, _):
            gpu.launch(1e-3 + 2 * self.n**3 / 1e12)

    monkeypatch.setattr(torch, "ones", lambda n, _, device, dtype: Matrix(n))
    best = peak.estimate(gpu.device, "float32", clock)
    assert sizes == sorted(sizes)
    assert best == pytest.approx(2 * sizes[-1] ** 3 / (1e-3 + 2 * sizes[-1] ** 3 / 1e12))
    assert clock.now - 100 < 2 * peak.LIMIT_S + 1.1  # one product of the largest size may go beyond


@pytest.mark.skipif(not onednn.HAS_LINEAR, reason="this torch has no oneDNN")
def test_the_faster_of_two_libraries_sets_the_peak(monkeypatch):
    clock = FakeClock()

    class Matrix:
        def __matmul__(self, _):
            clock.advance(2e-3)

    monkeypatch.setattr(torch, "ones", lambda *_, **__: Matrix())
    monkeypatch.setattr(onednn, "linear", lambda *_: clock.advance(1e-3))
    monkeypatch.setattr(peak, "SIZES", (128,))
    assert peak.estimate(CPU, "float32", clock) == pytest.approx(2 * 128**3 / 1e-3)
    assert peak.estimate(CPU, "bfloat16", clock) == pytest.approx(2 * 128**3 / 2e-3)


def test_an_estimate_here_is_a_plausible_rate():
    assert 1e8 < peak.estimate(CPU, "float32") < 1e14


def test_a_type_that_cannot_be_multiplied_has_no_peak(monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("not implemented for this type")

    monkeypatch.setattr(torch, "ones", fail)
    assert peak.estimate(CPU, "float16") is None


def measurements(flops, examples_per_s):
    return [
        figure("flops.executed", flops, "FLOP"),
        figure("latency.p50", 0.1, "s", source="measured"),
        figure("latency.p99", None, "s"),
        figure("latency.first", 0.1, "s", source="measured"),
        figure("throughput.examples", examples_per_s, "1/s", "higher", "measured"),
    ]


def marks(found):
    return [m.name for m in found if "implausible" in [caution.code for caution in m.cautions]]


def test_more_than_the_peak_is_marked_with_both_rates():
    found = peak.marked(measurements(10**9, 17e9), PEAK, n_examples=1000)  # 17 PFLOP/s
    assert marks(found) == ["latency.p50", "throughput.examples"]
    (caution,) = found[1].cautions
    assert "17.0 PFLOP/s" in caution.text
    assert "100 GFLOP/s" in caution.text
    assert caution.hint


@pytest.mark.parametrize("rate", [1e3, 9e4, 1.4e5])
def test_up_to_the_peak_and_a_little_more_is_not(rate):
    assert marks(peak.marked(measurements(10**9, rate), PEAK, n_examples=1000)) == []


def test_without_a_count_or_a_peak_nothing_is_said():
    plain = measurements(10**9, 17e9)
    assert list(peak.marked(plain, None, 1000)) == plain
    assert list(peak.marked(plain[1:], PEAK, 1000)) == plain[1:]
