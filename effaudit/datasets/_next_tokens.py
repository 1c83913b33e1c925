"""Language modelling with a model's own tokenizer: on labelled texts read as plain text, and on one long text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from effaudit.datasets._characters import TENTHS, CharacterModelling, Fractions, LongText, as_batch
from effaudit.datasets._dataset import Dataset
from effaudit.datasets._long_text import Text
from effaudit.datasets._model_tokenizer import ModelTokenizer
from effaudit.errors import EffauditError
from effaudit.record import Caution
from effaudit.workload import IGNORED_LABEL, Batch, Split

Ids = npt.NDArray[np.int64]


class NextTokens(Dataset):
    """The texts of a classification dataset, each token asked for the next one; their classes play no part."""

    task = "causal_lm"

    def __init__(self, texts: Dataset) -> None:
        self._texts = texts
        self.vocab_size, self.tokenizer = texts.vocab_size, texts.tokenizer
        self.own_tokenizer = texts.own_tokenizer

    def batches(self, split: Split, batch_size: int, limit: int | None = None) -> Iterator[Batch]:
        return map(_asking_for_next, self._texts.batches(split, batch_size, limit))

    def training_batches(self, batch_size: int, seed: int, first_step: int = 0) -> Iterator[Batch]:
        return map(_asking_for_next, self._texts.training_batches(batch_size, seed, first_step))

    def sha256(self, split: Split) -> str:
        return self._texts.sha256(split)

    def cautions(self) -> tuple[Caution, ...]:
        about_classes = ("single_class", "unbalanced_classes")
        return tuple(caution for caution in self._texts.cautions() if caution.code not in about_classes)


def _asking_for_next(batch: Batch) -> Batch:
    labels = batch.tokens.roll(-1, dims=1)
    labels[:, -1] = IGNORED_LABEL
    is_asked = batch.mask.roll(-1, dims=1)
    return replace(batch, labels=labels.masked_fill(~is_asked, IGNORED_LABEL))


class TokenModelling(Dataset):
    """Next-token prediction on contiguous splits of one text, in windows of `max_tokens` + 1 tokens.

    A text is encoded piece by piece, so that a token may end where a piece does; no special tokens are added.
    """

    task = "causal_lm"

    def __init__(self, text: Text, max_tokens: int, tokenizer: ModelTokenizer, fractions: Fractions = TENTHS) -> None:
        self._text, self._max_tokens, self._own = LongText(text, fractions), max_tokens, tokenizer
        self.tokenizer, self.vocab_size = tokenizer.backend, tokenizer.vocab_size
        self.own_tokenizer = tokenizer.identity

    def batches(self, split: Split, batch_size: int, limit: int | None = None) -> Iterator[Batch]:
        rest, n_windows, width = np.empty(0, dtype=np.int64), 0, self._max_tokens + 1
        for ids in self._ids(split):
            rest = np.concatenate([rest, ids])
            while len(rest) >= batch_size * width and n_windows != limit:
                n = batch_size if limit is None else min(batch_size, limit - n_windows)
                yield as_batch(rest[: n * width].reshape(n, width), n_windows)
                rest, n_windows = rest[n * width :], n_windows + n
            if n_windows == limit:
                return
        n = len(rest) // width if limit is None else min(len(rest) // width, limit - n_windows)
        if n:
            yield as_batch(rest[: n * width].reshape(n, width), n_windows)
        elif not n_windows:
            raise EffauditError(
                f"`{self._text.name}` is too short: the {split} split has {len(rest)} tokens, one window takes {width}",
                "give a longer text or lower max_tokens",
            )

    def training_batches(self, batch_size: int, seed: int, first_step: int = 0) -> Iterator[Batch]:
        raise EffauditError("models of one's own are audited, not trained", "train it with its own library")

    def sha256(self, split: Split) -> str:
        return self._text.sha256(split)

    def _ids(self, split: Split) -> Iterator[Ids]:
        for text in self._text.read(split):
            if text:
                yield np.array(self._own.encode([text], None)[0].ids, dtype=np.int64)


def long_text(
    text: Text,
    max_tokens: int,
    tokenizer: Tokenizer | ModelTokenizer | None = None,
    fractions: Fractions = TENTHS,
    has_unknown: bool = True,
) -> Dataset:
    """The text character by character, or in the tokens of a model's own tokenizer."""
    if isinstance(tokenizer, ModelTokenizer):
        return TokenModelling(text, max_tokens, tokenizer, fractions)
    return CharacterModelling(text, max_tokens, tokenizer, fractions, has_unknown)
