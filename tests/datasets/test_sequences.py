"""`copy` and `sort`: layout, masked loss, fixed draws."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from effaudit.datasets import copy, sort
from effaudit.datasets._sequences import SequenceTask
from effaudit.errors import EffauditError
from effaudit.profile_spec import DataSpec
from effaudit.workload import IGNORED_LABEL


def opened(name: str, **options: int) -> SequenceTask:
    module = {"copy": copy, "sort": sort}[name]
    return module.open_dataset(DataSpec(dataset=name, options={"n_train": 100, "n_test": 10, **options}))


@pytest.mark.parametrize("name", ["copy", "sort"])
def test_layout_and_masked_loss(name: str) -> None:
    (batch,) = opened(name, length=5).batches("test", 32)
    assert batch.tokens.shape == batch.labels.shape == (10, 12)
    source, target = batch.tokens[:, 1:6], batch.tokens[:, 7:]
    assert batch.tokens[:, 0].eq(1).all()
    assert batch.tokens[:, 6].eq(3).all()
    assert int(source.min()) >= 4
    assert int(source.max()) <= 31
    assert torch.equal(target, source if name == "copy" else source.sort(dim=1).values)
    assert batch.labels[:, :6].eq(IGNORED_LABEL).all()
    assert torch.equal(batch.labels[:, 6:11], target)
    assert batch.labels[:, 11].eq(2).all()
    assert not batch.is_padded


def test_defaults_are_the_papers() -> None:
    dataset = copy.open_dataset(DataSpec(dataset="copy"))
    assert dataset.vocab_size == 32
    assert [sum(b.n_examples for b in dataset.batches(split, 256)) for split in ("train", "test")] == [10_000, 1000]
    assert next(dataset.batches("test", 1)).tokens.shape == (1, 42)


def test_seed_fixes_sequences_and_splits_differ() -> None:
    dataset = opened("sort")
    assert dataset.sha256("test") == opened("sort").sha256("test")
    assert dataset.sha256("test") != opened("sort", seed=1).sha256("test")
    assert not torch.equal(next(dataset.batches("test", 1)).tokens, next(dataset.batches("train", 1)).tokens)


def test_training_is_shuffled_epochs_that_start_anywhere() -> None:
    dataset = opened("copy")
    steps = list(islice(dataset.training_batches(32, seed=0), 8))  # four steps an epoch: 32, 32, 32, 4
    for epoch in (steps[:4], steps[4:]):
        assert sorted(torch.cat([batch.index for batch in epoch]).tolist()) == list(range(100))
    assert not torch.equal(steps[0].index, steps[4].index)
    for first in (1, 3, 4, 6):
        again = next(dataset.training_batches(32, seed=0, first_step=first))
        assert torch.equal(again.tokens, steps[first].tokens)


def test_limit_and_errors() -> None:
    assert [batch.n_examples for batch in opened("copy").batches("test", 4, limit=6)] == [4, 2]
    with pytest.raises(EffauditError, match="length 40 takes 82 tokens, max_tokens is 64"):
        opened("copy", length=40)
    with pytest.raises(EffauditError, match="length"):
        opened("copy", length=0)
