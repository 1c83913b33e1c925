"""Character language modelling on one long text, read in pieces."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer

from effaudit.datasets._dataset import Dataset
from effaudit.datasets._long_text import Text
from effaudit.datasets._tokenize import UNKNOWN, character_tokenizer
from effaudit.errors import EffauditError
from effaudit.record import Caution
from effaudit.workload import Batch, Split

N_CODE_POINTS = 0x110000
MAX_MARKS = 1024  # kept of a text, so that memory does not grow with it; a stream starts at the nearest one before

Fractions = tuple[float, float, float]  # train, calibration, test
TENTHS: Fractions = (0.8, 0.1, 0.1)

Ids = npt.NDArray[np.uint16] | npt.NDArray[np.int32] | npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Survey:
    """What one pass over a text found."""

    n_characters: int
    first_at: dict[str, int]  # where each symbol occurs first
    marks: tuple[tuple[int, int], ...]  # (character, mark) of pieces spread evenly


def _survey(text: Text) -> _Survey:
    n = 0
    first_at: dict[str, int] = {}
    marks: list[tuple[int, int]] = []
    stride = 1
    for number, piece in enumerate(text.pieces()):
        if number % stride == 0:
            marks.append((piece.start, piece.mark))
        if len(marks) > MAX_MARKS:
            marks, stride = marks[::2], stride * 2
        for symbol in set(piece.text) - first_at.keys():
            first_at[symbol] = piece.start + piece.text.index(symbol)
        n = piece.start + len(piece.text)
    return _Survey(n, first_at, tuple(marks))


class LongText:
    """A text in contiguous splits, each read in pieces."""

    def __init__(self, text: Text, fractions: Fractions) -> None:
        self.name, self._text = text.name, text
        self.found = _survey(text)
        self.ranges = _split_ranges(self.found.n_characters, fractions)

    def read(self, split: Split) -> Iterator[str]:
        """The split's text, from the last mark at or before its beginning."""
        start, stop = self.ranges[split]
        origin, mark = max((at for at in self.found.marks if at[0] <= start), default=(0, 0))
        for piece in self._text.pieces(origin, mark):
            yield piece.text[max(start - piece.start, 0) : max(stop - piece.start, 0)]
            if piece.start + len(piece.text) >= stop:
                return

    def sha256(self, split: Split) -> str:
        digest = hashlib.sha256()
        for text in self.read(split):
            digest.update(text.encode("utf-8"))
        return digest.hexdigest()


class CharacterModelling(Dataset):
    """Next-character prediction on contiguous splits of one text.

    Evaluation takes non-overlapping windows of `max_tokens` + 1 characters in order and drops the last,
    partial one; training takes random windows. With `has_unknown` the vocabulary is that of the
    training split plus an unknown symbol, otherwise that of the whole text, as in the papers (65
    symbols for Tiny-Shakespeare). `spec.vocab_size` plays no part.
    """

    task = "causal_lm"
    is_characters = True

    def __init__(
        self,
        text: Text,
        max_tokens: int,
        tokenizer: Tokenizer | None = None,
        fractions: Fractions = TENTHS,
        has_unknown: bool = True,
    ) -> None:
        self._text, self._max_tokens = text, max_tokens
        self._long = LongText(text, fractions)
        self._found, self._ranges = self._long.found, self._long.ranges
        self._refuse_short_text()
        n_train = self._ranges["train"][1]
        symbols = [s for s, at in self._found.first_at.items() if at < n_train or not has_unknown]
        self.tokenizer = tokenizer or character_tokenizer(symbols, has_unknown)
        self.vocab_size = self.tokenizer.get_vocab_size()
        self._unknown = self.tokenizer.token_to_id(UNKNOWN)  # None where the vocabulary keeps none
        self._table = self._id_table()
        self._training_ids: Ids | None = None
        self._noticed: dict[Split, tuple[int, int]] = {}  # characters seen, unknown ones; of the longest pass

    def batches(self, split: Split, batch_size: int, limit: int | None = None) -> Iterator[Batch]:
        n_windows = n_seen = n_unknown = 0
        for windows in self._windows(split, batch_size, limit):
            yield as_batch(windows, n_windows)
            n_windows += len(windows)
            n_seen += windows.size
            n_unknown += 0 if self._unknown is None else int((windows == self._unknown).sum())
            self._noticed[split] = max((n_seen, n_unknown), self._noticed.get(split, (0, 0)))

    def training_batches(self, batch_size: int, seed: int, first_step: int = 0) -> Iterator[Batch]:
        ids, step = self._all_training_ids(), first_step
        offsets = np.arange(self._max_tokens + 1)
        while True:
            starts = np.random.default_rng([seed, step]).integers(0, len(ids) - self._max_tokens, batch_size)
            yield as_batch(ids[starts[:, None] + offsets], step * batch_size)
            step += 1

    def sha256(self, split: Split) -> str:
        return self._long.sha256(split)

    def cautions(self) -> tuple[Caution, ...]:
        hint = "they count as one unknown symbol, also where they are to be predicted"
        texts = (
            f"{n_unknown} of {n_seen} characters of {split} ({n_unknown / n_seen:.2%}) are not in the vocabulary"
            for split, (n_seen, n_unknown) in self._noticed.items()
            if n_unknown
        )
        return tuple(Caution(code="unknown_symbols", text=text, hint=hint) for text in texts)

    def _refuse_short_text(self) -> None:
        n, needed = self._found.n_characters, self._max_tokens + 1
        if n == 0:
            raise EffauditError(f"`{self._text.name}` is empty", "give a UTF-8 text file")
        for split, (start, stop) in self._ranges.items():
            if stop - start < needed:
                raise EffauditError(
                    f"`{self._text.name}` is too short: of its {n} characters {stop - start} are for {split}, "
                    f"one window takes {needed}",
                    "give a longer text or lower max_tokens",
                )

    def _id_table(self) -> Ids:
        """Id by code point, so that encoding is one look-up; equal to the tokenizer's own result."""
        assert self.tokenizer is not None
        vocabulary: dict[str, int] = self.tokenizer.get_vocab()
        missing = sorted(self._found.first_at.keys() - vocabulary.keys())
        if missing and UNKNOWN not in vocabulary:
            raise EffauditError(
                f"`{self._text.name}` has {len(missing)} symbols that the weights' vocabulary lacks, such as "
                f"{missing[0]!r}, and it keeps no unknown symbol",
                "audit on the text the weights were trained on, or train on `chars:<path>`, which keeps one",
            )
        dtype = np.uint16 if self.vocab_size <= 1 << 16 else np.int32
        table = np.full(N_CODE_POINTS, vocabulary.get(UNKNOWN, 0), dtype=dtype)
        for symbol, number in vocabulary.items():
            if len(symbol) == 1:
                table[ord(symbol)] = number
        return table

    def _all_training_ids(self) -> Ids:
        if self._training_ids is None:
            self._training_ids = np.empty(self._ranges["train"][1], dtype=self._table.dtype)
            at = 0
            for ids in self._ids("train"):
                self._training_ids[at : at + len(ids)] = ids
                at += len(ids)
        return self._training_ids

    def _ids(self, split: Split) -> Iterator[Ids]:
        for text in self._long.read(split):
            yield self._table[np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)]

    def _windows(self, split: Split, batch_size: int, limit: int | None) -> Iterator[Ids]:
        """Windows (<= batch_size, max_tokens + 1), `limit` of them in all."""
        start, stop = self._ranges[split]
        width = self._max_tokens + 1
        left = (stop - start) // width
        left = left if limit is None else min(left, limit)
        rest = np.empty(0, dtype=self._table.dtype)
        for ids in self._ids(split):
            rest = np.concatenate([rest, ids])
            while left and len(rest) >= min(left, batch_size) * width:
                n = min(left, batch_size)
                yield rest[: n * width].reshape(n, width)
                rest, left = rest[n * width :], left - n
            if not left:
                return


def _split_ranges(n: int, fractions: Fractions) -> dict[Split, tuple[int, int]]:
    n_train = int(n * fractions[0])
    n_seen = int(n * (fractions[0] + fractions[1]))
    return {"train": (0, n_train), "calibration": (n_train, n_seen), "test": (n_seen, n)}


def as_batch(windows: Ids, first_index: int) -> Batch:
    ids = torch.from_numpy(windows.astype(np.int64))  # (B, T+1)
    n, width = ids.shape
    return Batch(
        tokens=ids[:, :-1].contiguous(),
        mask=torch.ones(n, width - 1, dtype=torch.bool),
        labels=ids[:, 1:].contiguous(),
        index=torch.arange(first_index, first_index + n),
        is_padded=False,
    )
