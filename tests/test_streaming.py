"""Memory does not grow with the data: an audit of ten times the rows needs no more."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from effaudit import workloads
from effaudit.auditing import run_audit
from effaudit.datasets import _characters, _text
from effaudit.profile_spec import AuditProfile
from effaudit.training import train
from effaudit.workload import Batch
from tests import makers

FEW, MANY = 100, 600
# Bytes of slack for garbage that waits for its collector. A row of 216 B a meter, model and example would take 650 kB.
SLACK = 150_000

AUDIT = {"meters": ("routing", "quality", "flops"), "rounds": 2, "max_seconds": 0.01}


def write_table(path: Path, n: int) -> None:
    """Texts of 3 to 6 known words, so that neither lengths nor the vocabulary tell the sizes apart."""
    words = ("plain", "words", "that", "say", "very", "little")
    rows = (f"{' '.join(words[: 3 + i % 4])},{'ab'[i % 2]}\n" for i in range(n))
    path.write_text("text,label\n" + "".join(rows))


def write_text(path: Path, n: int) -> None:
    path.write_text("To be, or not to be. " * (n // 2))  # a test split of n windows


def table_profile(folder: Path, n: int) -> AuditProfile:
    write_table(folder / "train.csv", 40)
    write_table(folder / f"{n}.csv", n)
    data = {"dataset": f"table:{folder}", "options": {"train": "train.csv", "test": f"{n}.csv"}}
    return makers.profile("dense", "tsa", data={**data, "batch_size": 50}, audit=AUDIT)


def text_profile(folder: Path, n: int) -> AuditProfile:
    write_text(folder / f"{n}.txt", n)
    data = {"dataset": f"chars:{folder / f'{n}.txt'}", "options": {}}
    return makers.profile("dense", "tsa", data={**data, "batch_size": 50}, audit=AUDIT)


def peak_bytes(profile: AuditProfile, weights: Path, out: Path) -> int:
    """The peak of what Python and numpy held above the state before the audit."""
    gc.collect()
    tracemalloc.start()
    try:
        run_audit(profile, out, weights, is_quiet=True)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("make", [table_profile, text_profile])
def test_peak_of_an_audit_does_not_grow_with_the_file(
    make: Callable[[Path, int], AuditProfile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Bounds that a small file does not reach, made small: what lies below them is theirs.
    monkeypatch.setattr(workloads, "CACHED_TOKENS", 64)
    monkeypatch.setattr(_text, "POOL", 2)
    monkeypatch.setattr(_characters, "MAX_MARKS", 4)
    monkeypatch.setattr("effaudit.datasets._long_text.PIECE", 256)
    monkeypatch.setattr("effaudit.example_table.STRETCH", 64)
    monkeypatch.setattr("effaudit.example_table.IN_MEMORY", 256)
    train(make(tmp_path, FEW), tmp_path / "weights", is_quiet=True)
    run_audit(make(tmp_path, FEW), tmp_path / "first", tmp_path / "weights", is_quiet=True)  # what is set up once
    few, many = (peak_bytes(make(tmp_path, n), tmp_path / "weights", tmp_path / f"out{n}") for n in (FEW, MANY))
    assert many - few < SLACK


def test_no_batch_outlives_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors are torch's own memory: counted instead of weighed."""
    monkeypatch.setattr(workloads, "CACHED_TOKENS", 64)
    batches: list[weakref.ref[Batch]] = []
    alive: list[int] = []
    plain = Batch.to

    def watched(batch: Batch, device: torch.device) -> Batch:
        moved = plain(batch, device)
        batches.append(weakref.ref(moved))
        alive.append(sum(batch() is not None for batch in batches))
        return moved

    monkeypatch.setattr(Batch, "to", watched)
    profile = table_profile(tmp_path, 2000)
    audit = profile.audit.model_copy(update={"meters": ("routing", "latency")})
    run_audit(profile.model_copy(update={"audit": audit}), tmp_path / "out", is_quiet=True)
    assert len(batches) == 5 * 2000 / 50  # described, words counted, routed by two models, sampled for the clock
    assert max(alive) <= 16 + 2  # of the sample, in hand, just made
