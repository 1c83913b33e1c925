"""Which classes of tokens a model skips: spaces, digits, first characters of words, rare words.

A token's class is that of its own text; its loss is that of what follows it. Frequent and rare are words by their
counts among the first WORDS_COUNTED of the data, so that no pass has to keep a dictionary of all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from effaudit.record import TokenClassRow
from effaudit.scoring import answer_losses
from effaudit.workload import IGNORED_LABEL, Batch, Output

WORDS_COUNTED = 100_000
FREQUENT_SHARE = 0.5  # the most common words that make up this share of all words are frequent
RARE_COUNT = 1  # words seen at most this often are rare
STARTS_WORD = ("Ġ", "▁")  # how pieces of byte-level and sentence tokenizers say that a space stood before them
CONTINUES_WORD = "##"  # how pieces of WordPiece say the opposite

FREQUENT, RARE = "frequent word", "rare word"
CLASSES = (
    *("space", "line end", "punctuation", "digit", "first of a word", "rest of a word", "whole word", "other"),
    *(FREQUENT, RARE),
)
BITS = {name: 1 << i for i, name in enumerate(CLASSES)}

Pieces = Callable[[Sequence[int]], tuple[str, ...]]


@dataclass(frozen=True)
class Span:
    """A word in a text: its tokens from `start` to before `stop`."""

    start: int
    stop: int
    word: str


def kind_of(piece: str) -> str:
    """The class of a token by its text alone; `word` for all that has letters."""
    text = _bare(piece)
    if not text:
        return "space" if piece else "other"
    if len(text) > 2 and text[0] + text[-1] in ("[]", "<>"):  # a tokenizer's own symbol
        return "other"
    if text.isspace():
        return "line end" if "\n" in text else "space"
    if any(c.isalpha() for c in text):
        return "word"
    return "digit" if any(c.isdigit() for c in text) else "punctuation"


def _bare(piece: str) -> str:
    if piece.startswith(STARTS_WORD):
        return piece[1:]
    if piece.startswith(CONTINUES_WORD) and len(piece) > len(CONTINUES_WORD):
        return piece[len(CONTINUES_WORD) :]
    return piece.replace("Ċ", "\n")  # a line end of byte-level tokenizers


def words_in(pieces: Sequence[str], kinds: Sequence[str], is_characters: bool) -> Iterator[Span]:
    """The words of a text: runs of letters, or pieces that go on from one another, or single tokens."""
    is_marked = any(piece.startswith(STARTS_WORD) for piece in pieces)
    start: int | None = None
    for at in range(len(pieces) + 1):
        is_inside = at < len(pieces) and kinds[at] == "word"
        if start is not None and not (is_inside and _goes_on(pieces[at], is_characters, is_marked)):
            yield Span(start, at, "".join(map(_bare, pieces[start:at])).lower())
            start = None
        if is_inside and start is None:
            start = at


def _goes_on(piece: str, is_characters: bool, is_marked: bool) -> bool:
    """Whether a piece with letters belongs to the word before it; tokens of a tokenizer of words never do."""
    if is_characters or piece.startswith(CONTINUES_WORD):
        return True
    return is_marked and not piece.startswith(STARTS_WORD)


class Texts:
    """The texts of tokens by id, and the counts of the words at the beginning of the data."""

    def __init__(self, pieces: Pieces, is_characters: bool) -> None:
        self.is_characters = is_characters
        self._pieces = pieces
        self._known: dict[int, str] = {}
        self._counts: Counter[str] = Counter()
        self._frequent: frozenset[str] = frozenset()

    def count(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            for pieces in self.of(batch):
                kinds = [kind_of(piece) for piece in pieces]
                self._counts.update(span.word for span in words_in(pieces, kinds, self.is_characters))
            if self._counts.total() >= WORDS_COUNTED:
                break
        total, frequent = 0, set()
        for word, n in self._counts.most_common():
            if total >= FREQUENT_SHARE * self._counts.total():
                break
            frequent.add(word)
            total += n
        self._frequent = frozenset(frequent)

    def of(self, batch: Batch) -> Iterator[list[str]]:
        """The pieces of each example's real tokens."""
        for ids, real in zip(batch.tokens.tolist(), batch.mask.tolist(), strict=True):
            numbers = [number for number, is_real in zip(ids, real, strict=True) if is_real]
            unknown = [number for number in dict.fromkeys(numbers) if number not in self._known]
            self._known.update(zip(unknown, self._pieces(unknown), strict=True))
            yield [self._known[number] for number in numbers]

    def classes(self, pieces: Sequence[str]) -> list[int]:
        """The classes of each token of a text, a bit each."""
        kinds = [kind_of(piece) for piece in pieces]
        bits = [0 if kind == "word" else BITS[kind] for kind in kinds]
        for span in words_in(pieces, kinds, self.is_characters):
            common = BITS[FREQUENT] if span.word in self._frequent else 0
            if self._counts[span.word] <= RARE_COUNT:
                common = BITS[RARE]
            is_whole = span.stop - span.start == 1 and not self.is_characters
            bits[span.start] = common | BITS["whole word" if is_whole else "first of a word"]
            for at in range(span.start + 1, span.stop):
                bits[at] = common | BITS["rest of a word"]
        return bits


class TokenClasses:
    """Sums by class over one pass: C classes, L layers."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._n_tokens = torch.zeros(len(CLASSES), dtype=torch.float64)
        self._sums: dict[str, Tensor] = {}

    def add(self, batch: Batch, output: Output, kept: Tensor | None) -> None:
        """`kept` (B, T, L) bool, or None where nothing is decided by token."""
        real = batch.mask
        bits = torch.tensor([b for pieces in self._texts.of(batch) for b in self._texts.classes(pieces)])  # (N,)
        members = ((bits[:, None] >> torch.arange(len(CLASSES))) & 1).to(real.device).double()  # (N, C)
        self._n_tokens += members.sum(dim=0).cpu()
        if kept is not None:
            self._sum("hard", members, kept[real])
        if output.routing.gate is not None:
            self._sum("soft", members, output.routing.gate[real])
        if output.routing.exits is not None and output.routing.exits.dim() == 2:
            self._sum("exits", members, output.routing.exits[real][:, None])
        if batch.labels.dim() == 2 and not output.no_quality:
            asked = (batch.labels != IGNORED_LABEL)[real]
            losses = answer_losses(output.logits, batch)[real]
            self._sum("loss", members, torch.stack([losses, asked.double()], dim=1))

    def _sum(self, name: str, members: Tensor, values: Tensor) -> None:
        total = (members.T @ values.double()).cpu()  # (C, columns)
        self._sums[name] = self._sums[name] + total if name in self._sums else total

    def rows(self, gated: Sequence[int]) -> tuple[TokenClassRow, ...]:
        """The classes that occur; `gated` are the layers, from 0, that decide about tokens. Nothing without texts."""
        if float(self._n_tokens[CLASSES.index("other")]) == float(self._n_tokens.sum()):
            return ()
        return tuple(self._row(i, gated) for i in range(len(CLASSES)) if self._n_tokens[i])

    def _row(self, i: int, gated: Sequence[int]) -> TokenClassRow:
        n = float(self._n_tokens[i])
        hard, soft, exits, loss = (self._sums.get(name) for name in ("hard", "soft", "exits", "loss"))
        return TokenClassRow(
            name=CLASSES[i],
            n_tokens=int(n),
            loss=float(loss[i, 0] / loss[i, 1]) if loss is not None and loss[i, 1] else None,
            alpha_soft=float(soft[i, list(gated)].mean() / n) if soft is not None and gated else None,
            alpha_hard=float(hard[i, list(gated)].mean() / n) if hard is not None and gated else None,
            exit_layer=float(exits[i, 0] / n) if exits is not None else None,
            layers=tuple((hard[i] / n).tolist()) if hard is not None else (),
        )
