"""Labelled texts as ids: what a tokenizer made of each, and how several become a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from effaudit.datasets._dataset import TextExample
from effaudit.datasets._model_tokenizer import ModelTokenizer
from effaudit.workload import Batch

Ids = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Encoded:
    """One example as ids, (T,) with T >= 1."""

    ids: Ids
    label: int
    index: int
    difficulty: float | None
    segments: Ids | None = None


@dataclass
class Tally:
    """What one pass over a split has noticed so far."""

    n_examples: int = 0
    n_words: int = 0
    n_unknown: int = 0
    n_truncated: int = 0
    n_empty: int = 0
    n_nul: int = 0
    labels: Counter[int] = field(default_factory=Counter)


def encoded_as_own(
    own: ModelTokenizer, examples: Sequence[TextExample], max_tokens: int, tally: Tally
) -> list[Encoded]:
    """As a model's own tokenizer reads them, with its special tokens."""
    texts = [e.text if e.text_pair is None else (e.text, e.text_pair) for e in examples]
    encoded = []
    for example, found in zip(examples, own.encode(texts, max_tokens), strict=True):
        n_special = sum(found.special_tokens_mask)
        tally.n_words += len(found.ids) - n_special
        tally.n_unknown += 0 if own.unknown is None else found.ids.count(own.unknown)
        tally.n_truncated += bool(found.overflowing)
        tally.n_empty += len(found.ids) == n_special
        ids = np.array(found.ids or [own.padding], dtype=np.int32)
        has_segments = own.has_segments and example.text_pair is not None
        segments = np.array(found.type_ids, dtype=np.int32) if has_segments else None
        encoded.append(Encoded(ids, example.label, tally.n_examples, example.difficulty, segments))
        tally.n_examples += 1
        tally.labels[example.label] += 1
    return encoded


def collate(examples: Sequence[Encoded], padding: int) -> Batch:
    """A batch as long as its longest example."""
    lengths = [len(example.ids) for example in examples]
    difficulty = [example.difficulty for example in examples if example.difficulty is not None]
    has_segments = any(example.segments is not None for example in examples)
    return Batch(
        tokens=_padded([example.ids for example in examples], padding),
        mask=torch.arange(max(lengths)) < torch.tensor(lengths)[:, None],  # (B, T)
        labels=torch.tensor([example.label for example in examples]),
        index=torch.tensor([example.index for example in examples]),
        is_padded=min(lengths) < max(lengths),
        difficulty=torch.tensor(difficulty, dtype=torch.float32) if len(difficulty) == len(examples) else None,
        segments=_padded([_segments(example) for example in examples], 0) if has_segments else None,
    )


def _segments(example: Encoded) -> Ids:
    return np.zeros_like(example.ids) if example.segments is None else example.segments


def _padded(rows: Sequence[Ids], padding: int) -> Tensor:
    """(B, T)"""
    padded = np.full((len(rows), max(len(row) for row in rows)), padding, dtype=np.int64)
    for whole, row in zip(padded, rows, strict=True):
        whole[: len(row)] = row
    return torch.from_numpy(padded)
