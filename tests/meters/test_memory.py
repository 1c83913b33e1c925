"""Peaks against tensors of known size, and against allocators that the tests own."""

import os
import sys
import threading
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch
from torch import nn

from effaudit.meters import _heap, _process_peak, memory
from effaudit.profile_spec import AuditSpec
from tests.fakes import FakeAllocator, FakeMpsAllocator, batch, workload

MIB = 2**20
linux = pytest.mark.skipif(not _process_peak.can_reset_peak(), reason="the kernel has no peak that can be reset")


def by_name(findings):
    return {m.name: m for m in findings.measurements}


def filling(n_mib):
    """A forward that makes, fills and frees `n_mib` MiB."""
    return lambda _: torch.empty(n_mib * MIB // 4).fill_(1.0)


def in_pieces(n_mib):
    """The same in tensors of 64 KiB: below the size at which the C library maps pages of their own."""
    return lambda _: [torch.ones(16 * 1024) for _ in range(16 * n_mib)]


@linux
@pytest.mark.parametrize("order", [(256, 320, 16), (320, 16, 256)])
def test_a_tensor_shows_as_its_size_whatever_ran_before(order):
    for n in order:
        in_pieces(n)(None)
    works = [workload(filling(n), name=str(n)) for n in order]
    for n, found in zip(order, memory.measure(works, AuditSpec()), strict=True):
        assert by_name(found)["memory.peak"].value == pytest.approx(n * MIB, rel=0.05)


def in_a_thread(act):
    """The same in a thread of its own, which has a heap of its own."""

    def run(b):
        thread = threading.Thread(target=act, args=(b,))
        thread.start()
        thread.join()

    return run


KINDS = {
    "torch": filling,
    "numpy": lambda n: lambda _: np.ones(n * MIB // 8),
    "bytes": lambda n: lambda _: bytearray(n * MIB).find(1),
    "pieces": in_pieces,
    "torch in a thread": lambda n: in_a_thread(filling(n)),
    "pieces in a thread": lambda n: in_a_thread(in_pieces(n)),
}


@linux
def test_it_shows_whoever_takes_it_and_in_whatever_order():
    works = [workload(make(128), name=name) for name, make in KINDS.items()]
    torch.ones(512 * MIB // 4)  # freed at once
    for order in (works, works[::-1]):
        found = zip(order, memory.measure(order, AuditSpec()), strict=True)
        peaks = {work.name: by_name(findings)["memory.peak"].value / MIB for work, findings in found}
        assert peaks == {name: pytest.approx(128, rel=0.05) for name in KINDS}


@linux
def test_what_a_model_keeps_is_not_counted_again():
    kept = {}

    def act(_):
        if not kept:
            kept["cache"] = torch.ones(64 * MIB // 4)
        torch.ones(32 * MIB // 4)

    found = by_name(memory.measure([workload(act)], AuditSpec())[0])["memory.peak"]
    assert found.value == pytest.approx(32 * MIB, rel=0.05)
    assert "what a model keeps from pass to pass is not in it" in found.method


@linux
def test_small_pieces_add_up_and_freed_ones_do_not():
    works = [workload(in_pieces(32)), workload(filling(8)), workload(in_pieces(32))]
    peaks = [by_name(found)["memory.peak"].value / MIB for found in memory.measure(works, AuditSpec())]
    assert peaks == [pytest.approx(32, rel=0.05), pytest.approx(8, rel=0.1), pytest.approx(32, rel=0.05)]


@linux
def test_the_largest_batch_decides():
    stream = [batch(1, 2), batch(1, 64), batch(1, 8)]
    work = workload(lambda b: torch.empty(b.tokens.shape[1] * MIB // 4).fill_(1.0), stream)
    assert by_name(memory.measure([work], AuditSpec())[0])["memory.peak"].value == pytest.approx(64 * MIB, rel=0.05)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, 8)
        self.head = nn.Linear(8, 100, bias=False)
        self.head.weight = self.embedding.weight
        self.half = self.embedding.weight.data[:50]  # a plain attribute, no buffer
        self.register_buffer("mask", torch.zeros(16, dtype=torch.bool))
        self.register_buffer("view", self.mask[:4])


def test_weights_count_shared_storage_once():
    assert memory.weight_bytes(Tied()) == 100 * 8 * 4 + 16
    assert memory.weight_bytes(nn.Linear(3, 2, device="meta")) == (6 + 2) * 4


def test_on_a_cpu_there_is_no_allocator_peak():
    found = by_name(memory.measure([workload(lambda _: None)], AuditSpec())[0])
    for name in ("memory.allocated", "memory.reserved"):
        assert found[name].value is None
        assert "no caching allocator" in found[name].method


def test_without_a_resettable_peak_it_is_sampled_and_said(monkeypatch, tmp_path):
    monkeypatch.setattr(_process_peak, "PROC", tmp_path / "absent")
    before = threading.enumerate()
    found = by_name(memory.measure([workload(filling(256))], AuditSpec())[0])["memory.peak"]
    assert threading.enumerate() == before
    assert "sampled each 1 ms" in found.method
    assert [caution.code for caution in found.cautions] == ["sampled"]
    assert 0 < found.value < 300 * MIB


def test_the_sampling_thread_ends_when_forward_raises(monkeypatch, tmp_path):
    monkeypatch.setattr(_process_peak, "PROC", tmp_path / "absent")
    calls = []

    def act(_):
        calls.append(1)
        if len(calls) > 1:
            raise RuntimeError("broken")

    before = threading.enumerate()
    with pytest.raises(RuntimeError, match="broken"):
        memory.measure([workload(act)], AuditSpec())
    assert threading.enumerate() == before


@pytest.mark.parametrize("kind", ["cuda", "xpu"])
def test_an_allocators_peaks_are_reset_first_and_are_three(monkeypatch, kind):
    module = torch.get_device_module(kind)
    allocator = FakeAllocator().install(monkeypatch, module)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda _: None)
    work = workload(lambda _: allocator.take(100, rounded_up=256), device=torch.device(kind))
    found = by_name(memory.measure([work], AuditSpec())[0])
    assert found["memory.peak"].value == 100  # not the 5000 of an earlier model
    assert found["memory.allocated"].value == 130
    assert found["memory.reserved"].value == 256
    assert found["memory.reserved"].value >= found["memory.allocated"].value
    assert found["memory.weights"].value == 0
    assert kind.upper() in found["memory.peak"].method


def test_a_device_without_counters_is_never_given_the_hosts_memory(monkeypatch):
    monkeypatch.setattr(torch, "get_device_module", lambda _: SimpleNamespace())
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda _: None)
    found = by_name(memory.measure([workload(filling(16), device=torch.device("xpu"))], AuditSpec())[0])
    for name in ("memory.peak", "memory.allocated", "memory.reserved"):
        assert found[name].value is None
        assert "xpu" in found[name].method


def test_mps_is_sampled_and_labelled(monkeypatch):
    allocator = FakeMpsAllocator().install(monkeypatch)

    def act(_):
        allocator.held += 500

    found = by_name(memory.measure([workload(act, device=torch.device("mps"))], AuditSpec())[0])
    assert found["memory.peak"].value == 500  # not what the driver holds
    assert "torch.mps.current_allocated_memory" in found["memory.peak"].method
    assert [caution.code for caution in found["memory.peak"].cautions] == ["sampled"]


# child processes


def with_workers(n, shared, own_mib):
    """A forward with `n` forked workers that read all of `shared` and take `own_mib` MiB each."""

    def work(go):
        shared.sum()
        own = np.ones(own_mib * MIB // 8)
        os.read(go, 1)
        os._exit(int(own[0]) - 1)

    def act(_):
        waits, pids = [], []
        for _ in range(n):
            end, go = os.pipe()
            if (pid := os.fork()) == 0:
                work(end)
            waits.append((end, go))
            pids.append(pid)
        threading.Event().wait(0.3)
        for (end, go), pid in zip(waits, pids, strict=True):
            os.write(go, b"x")
            os.waitpid(pid, 0)
            os.close(end)
            os.close(go)

    return act


@linux
@pytest.mark.skipif(not _process_peak.tells_shares(), reason="this system tells no PSS")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_forked_workers_do_not_count_shared_pages_again():
    shared = np.ones(128 * MIB // 8)
    found = by_name(memory.measure([workload(with_workers(4, shared, own_mib=16))], AuditSpec())[0])
    own = 4 * 16 * MIB
    everything = psutil.Process().memory_info().rss
    assert own < found["memory.children"].value < own + everything  # four times the parent by RSS
    assert found["memory.children"].value - own == pytest.approx(everything * 4 / 5, rel=0.5)  # their share
    assert found["memory.peak"].value is None or found["memory.peak"].value < 16 * MIB  # no worker's


def test_without_child_processes_they_hold_nothing():
    found = by_name(memory.measure([workload(lambda _: None)], AuditSpec())[0])["memory.children"]
    assert found.value in (0, None)
    assert (found.value == 0) is _process_peak.tells_shares()


def test_without_shares_the_memory_of_children_is_unavailable(monkeypatch):
    monkeypatch.setattr(psutil.Process, "memory_full_info", lambda _: SimpleNamespace(rss=5, uss=3))
    calls = []
    found = by_name(memory.measure([workload(calls.append)], AuditSpec())[0])["memory.children"]
    assert found.value is None
    assert "PSS" in found.method
    assert len(calls) == 2  # the warm-up took place all the same


@linux
def test_another_allocator_is_left_alone_and_said(monkeypatch, tmp_path):
    (tmp_path / "maps").write_text("0-ffffffffffffffff r-xp 0 0:0 0                  /usr/lib/libjemalloc.so.2\n")
    monkeypatch.setattr(_heap, "MAPS", tmp_path / "maps")
    assert not _heap.is_glibc()
    found = by_name(memory.measure([workload(filling(64))], AuditSpec())[0])["memory.peak"]
    assert [caution.code for caution in found.cautions] == ["foreign_allocator"]


@linux
def test_holes_that_earlier_work_left_do_not_change_a_peak():
    """Three tensors of unlike size, one freed before the next: 3 MiB live at most."""

    def act(_):
        for n_kib in (1000, 2000, 3072, 300):
            torch.ones(n_kib * 256)

    peaks = []
    for k in (0, 30, 300, 3000):
        kept = [torch.ones(k * 256) for _ in range(3000 // k)][::7] if k else []
        peaks.append(by_name(memory.measure([workload(act)], AuditSpec())[0])["memory.peak"].value / MIB)
        del kept
    assert peaks == pytest.approx([3.0] * 4, rel=0.1)


def test_the_c_library_is_asked_only_on_linux(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(_heap.ctypes, "CDLL", lambda _: pytest.fail("not on this platform"))
    _heap.give_back()
    with _heap.no_holes():
        pass
