"""Synthetic sequence tasks `[BOS] source [SEP] target [EOS]`, asked for target and [EOS] only (as TSA's)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Annotated

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field

from effaudit.datasets._dataset import Dataset
from effaudit.errors import EffauditError
from effaudit.profile_spec import Count, DataSpec, Integer, Spec, validated
from effaudit.workload import IGNORED_LABEL, Batch, Split

BEGIN, END, SEPARATOR = 1, 2, 3  # 0 is padding, which never occurs
FIRST_SYMBOL, VOCAB_SIZE = 4, 32

Sequences = npt.NDArray[np.int64]


class Options(Spec):
    """`length` of source and target; the paper's text has 10, its code 20."""

    length: Count = 20
    n_train: Count = 10_000
    n_calibration: Count = 1000
    n_test: Count = 1000
    seed: Annotated[Integer, Field(ge=0)] = 0


class SequenceTask(Dataset):
    """`target` of random symbols 4..31; ids are fixed, so no tokenizer is needed.

    All sequences are drawn from the seed alone; with few symbols splits may share some.
    """

    task = "causal_lm"
    vocab_size = VOCAB_SIZE

    def __init__(self, spec: DataSpec, target: Callable[[Sequences], Sequences]) -> None:
        options = validated(Options, spec.options, f"data options of `{spec.kind}`")
        self._n_ignored = options.length + 1  # labels up to and with the separator
        n_tokens = 2 * options.length + 2
        if n_tokens > spec.max_tokens:
            raise EffauditError(
                f"`{spec.kind}` of length {options.length} takes {n_tokens} tokens, max_tokens is {spec.max_tokens}",
                "raise max_tokens or lower the option `length`",
            )
        sizes: dict[Split, int] = {
            "train": options.n_train,
            "calibration": options.n_calibration,
            "test": options.n_test,
        }
        self._sequences = {
            split: _drawn([options.seed, stream], n, options.length, target)
            for stream, (split, n) in enumerate(sizes.items())
        }

    def batches(self, split: Split, batch_size: int, limit: int | None = None) -> Iterator[Batch]:
        n = len(self._sequences[split][:limit])
        for start in range(0, n, batch_size):
            yield self._batch(split, np.arange(start, min(start + batch_size, n)))

    def training_batches(self, batch_size: int, seed: int, first_step: int = 0) -> Iterator[Batch]:
        n = len(self._sequences["train"])
        epoch, skipped = divmod(first_step, -(-n // batch_size))
        while True:
            order = np.random.default_rng([seed, epoch]).permutation(n)
            for start in range(skipped * batch_size, n, batch_size):
                yield self._batch("train", order[start : start + batch_size])
            epoch, skipped = epoch + 1, 0

    def sha256(self, split: Split) -> str:
        return hashlib.sha256(self._sequences[split].astype("<i8").tobytes()).hexdigest()

    def _batch(self, split: Split, chosen: npt.NDArray[np.int64]) -> Batch:
        ids = torch.from_numpy(self._sequences[split][chosen])  # (B, T+1)
        labels = ids[:, 1:].clone()
        labels[:, : self._n_ignored] = IGNORED_LABEL
        return Batch(
            tokens=ids[:, :-1].contiguous(),
            mask=torch.ones_like(labels, dtype=torch.bool),
            labels=labels,
            index=torch.from_numpy(chosen),
            is_padded=False,
        )


def _drawn(seed: list[int], n: int, length: int, target: Callable[[Sequences], Sequences]) -> Sequences:
    """Whole sequences (n, 2 * length + 3)."""
    source = np.random.default_rng(seed).integers(FIRST_SYMBOL, VOCAB_SIZE, (n, length))
    begin, separator, end = (np.full((n, 1), mark) for mark in (BEGIN, SEPARATOR, END))
    return np.concatenate([begin, source, separator, target(source), end], axis=1)
