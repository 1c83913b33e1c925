"""Peaks against tensors of known size, and against allocators that the tests own."""

import sys
import threading

import pytest
import torch
from torch import nn

from effaudit.meters import _heap, memory
from effaudit.profile_spec import AuditSpec
from tests.fakes_machine import batch, workload

MIB = 2**20
linux = pytest.mark.skipif(not memory.can_reset_peak(), reason="the kernel has no peak that can be reset")


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
    monkeypatch.setattr(memory, "PROC", tmp_path / "absent")
    before = threading.enumerate()
    found = by_name(memory.measure([workload(filling(256))], AuditSpec())[0])["memory.peak"]
    assert threading.enumerate() == before
    assert "sampled each 1 ms" in found.method
    assert [caution.code for caution in found.cautions] == ["sampled"]
    assert 0 < found.value < 300 * MIB


def test_the_sampling_thread_ends_when_forward_raises(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "PROC", tmp_path / "absent")
    calls = []

    def act(_):
        calls.append(1)
        if len(calls) > 1:
            raise RuntimeError("broken")

    before = threading.enumerate()
    with pytest.raises(RuntimeError, match="broken"):
        memory.measure([workload(act)], AuditSpec())
    assert threading.enumerate() == before


class Allocator:
    """torch.cuda's counters for a forward that takes 100 B while another 30 B are in use."""

    def __init__(self) -> None:
        self.allocated, self.peak, self.reserved = 30, 5000, 9000

    def install(self, monkeypatch):
        def reset(_):
            self.peak = self.reserved = self.allocated

        monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
        monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: self.allocated)
        monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: self.peak)
        monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda _: self.reserved)
        monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", reset)

    def forward(self, _):
        self.peak = max(self.peak, self.allocated + 100)
        self.reserved = max(self.reserved, 256)


def test_cuda_peaks_are_reset_first_and_are_three(monkeypatch):
    allocator = Allocator()
    allocator.install(monkeypatch)
    work = workload(allocator.forward, device=torch.device("cuda"))
    found = by_name(memory.measure([work], AuditSpec())[0])
    assert found["memory.peak"].value == 100  # not the 5000 of an earlier model
    assert found["memory.allocated"].value == 130
    assert found["memory.reserved"].value == 256


def test_mps_is_sampled_and_labelled(monkeypatch):
    held = [1000]
    monkeypatch.setattr(torch.mps, "current_allocated_memory", lambda: held[0])
    monkeypatch.setattr(torch.mps, "synchronize", lambda: None)

    def act(_):
        held[0] += 500

    found = by_name(memory.measure([workload(act, device=torch.device("mps"))], AuditSpec())[0])
    assert found["memory.peak"].value == 500
    assert "torch.mps.current_allocated_memory" in found["memory.peak"].method


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
