"""Text classification: labelled texts, streamed, become padded batches of like length."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from effaudit.datasets._dataset import Dataset, TextExample
from effaudit.datasets._encoded import Encoded, Tally, collate, encoded_as_own
from effaudit.datasets._model_tokenizer import ModelTokenizer
from effaudit.datasets._tokenize import PADDING, SEPARATOR, UNKNOWN, word_tokenizer
from effaudit.errors import EffauditError
from effaudit.record import Caution
from effaudit.workload import Batch, Split

POOL = 64  # batches sorted by length together: little padding, and little memory
UNBALANCED_RATIO = 3  # the largest class over the smallest
UNBALANCED_SHARE = 0.8  # of the largest class


class TextClassification(Dataset):
    """Labelled texts of any source; `examples(split)` starts the split's stream anew.

    Without a tokenizer a word-level one is fitted on the training split; a given one must have [PAD] and
    [UNK], and [SEP] where examples are pairs, which are encoded as `a [SEP] b`. Texts longer than
    `max_tokens` are cut at the end, the longer of a pair first; an empty text is one unknown word. A model's
    own tokenizer adds the special tokens that it was trained with and joins pairs in its own way.
    """

    task = "classification"

    def __init__(
        self,
        examples: Callable[[Split], Iterable[TextExample]],
        class_names: Sequence[str],
        max_tokens: int,
        vocab_size: int,
        tokenizer: Tokenizer | ModelTokenizer | None = None,
    ) -> None:
        self._examples, self._max_tokens = examples, max_tokens
        self.class_names, self.n_classes = tuple(class_names), len(class_names)
        self._own = tokenizer if isinstance(tokenizer, ModelTokenizer) else None
        if isinstance(tokenizer, ModelTokenizer):
            self.tokenizer, self.own_tokenizer = tokenizer.backend, tokenizer.identity
            self._padding, self._unknown = tokenizer.padding, tokenizer.unknown
        else:
            self.tokenizer = tokenizer or self._fitted_tokenizer(vocab_size)
            self._padding, self._unknown = self._id_of(PADDING), self._id_of(UNKNOWN)
        self.vocab_size = self.tokenizer.get_vocab_size()
        self._tallies: dict[Split, Tally] = {}  # of the longest pass over each split
        self._training: list[Encoded] | None = None

    def batches(self, split: Split, batch_size: int, limit: int | None = None) -> Iterator[Batch]:
        is_empty = True
        for pool in self._encoded_pools(split, batch_size * POOL, limit):
            is_empty = False
            pool.sort(key=lambda example: len(example.ids))
            for start in range(0, len(pool), batch_size):
                yield collate(pool[start : start + batch_size], self._padding)
        if is_empty:
            raise _empty(split)

    def training_batches(self, batch_size: int, seed: int, first_step: int = 0) -> Iterator[Batch]:
        if self._training is None:
            self._training = [e for pool in self._encoded_pools("train", batch_size * POOL) for e in pool]
        if not self._training:
            raise _empty("train")
        epoch, skipped = divmod(first_step, -(-len(self._training) // batch_size))
        while True:
            for chosen in self._epoch(batch_size, seed, epoch)[skipped:]:
                yield collate([self._training[i] for i in chosen], self._padding)
            epoch, skipped = epoch + 1, 0

    def sha256(self, split: Split) -> str:
        digest = hashlib.sha256()
        for example in self._examples(split):
            row = [example.text, example.text_pair, example.label]
            digest.update(json.dumps(row).encode() + b"\n")
        return digest.hexdigest()

    def cautions(self) -> tuple[Caution, ...]:
        return tuple(
            caution
            for split, tally in self._tallies.items()
            for caution in (*_text_cautions(split, tally, self._max_tokens), *self._class_cautions(split, tally))
        )

    def _fitted_tokenizer(self, vocab_size: int) -> Tokenizer:
        texts = _all_texts(self._examples("train"))
        first = next(texts, None)
        if first is None:
            raise _empty("train")
        return word_tokenizer(chain([first], texts), vocab_size)

    def _id_of(self, symbol: str) -> int:
        assert self.tokenizer is not None
        found: int | None = self.tokenizer.token_to_id(symbol)
        if found is None:
            raise EffauditError(
                f"the weights' tokenizer has no `{symbol}` symbol", "it was made for another task: choose other weights"
            )
        return found

    def _encoded_pools(self, split: Split, size: int, limit: int | None = None) -> Iterator[list[Encoded]]:
        tally = Tally()
        stream = iter(islice(self._examples(split), limit))
        while chunk := list(islice(stream, size)):
            pool = self._encode(chunk, tally)
            if split not in self._tallies or tally.n_examples > self._tallies[split].n_examples:
                self._tallies[split] = tally
            yield pool

    def _encode(self, examples: Sequence[TextExample], tally: Tally) -> list[Encoded]:
        if self._own is not None:
            return encoded_as_own(self._own, examples, self._max_tokens, tally)
        assert self.tokenizer is not None
        texts = list(_all_texts(examples))
        tally.n_nul += sum("\0" in text for text in texts)
        texts = [text.replace("\0", " ") for text in texts]
        encodings = iter(self.tokenizer.encode_batch(texts, add_special_tokens=False))
        encoded = []
        for example in examples:
            parts = [next(encodings).ids] if example.text_pair is None else [next(encodings).ids, next(encodings).ids]
            ids = np.array(self._joined(parts, tally), dtype=np.int32)
            encoded.append(Encoded(ids, example.label, tally.n_examples, example.difficulty))
            tally.n_examples += 1
            tally.labels[example.label] += 1
        return encoded

    def _joined(self, parts: list[list[int]], tally: Tally) -> list[int]:
        """One example's ids, cut to max_tokens."""
        assert self._unknown is not None
        for part in parts:
            tally.n_words += len(part)
            tally.n_unknown += part.count(self._unknown)
        tally.n_empty += any(not part for part in parts)
        parts = [part or [self._unknown] for part in parts]
        if len(parts) == 1:
            tally.n_truncated += len(parts[0]) > self._max_tokens
            return parts[0][: self._max_tokens]
        first, second = parts
        room = self._max_tokens - 1  # for the separator
        tally.n_truncated += len(first) + len(second) > room
        n_second = max(room // 2, room - len(first))
        n_first = max(room - n_second, room - len(second))
        return [*first[:n_first], self._id_of(SEPARATOR), *second[:n_second]]

    def _epoch(self, batch_size: int, seed: int, epoch: int) -> list[npt.NDArray[np.int64]]:
        """The epoch's batches as positions in the training split: random, of like length, in random order."""
        assert self._training is not None
        random = np.random.default_rng([seed, epoch])
        lengths = np.array([len(example.ids) for example in self._training])
        order = random.permutation(len(lengths))
        batches = []
        for start in range(0, len(order), batch_size * POOL):
            pool = order[start : start + batch_size * POOL]
            pool = pool[np.argsort(lengths[pool], kind="stable")]
            batches += [pool[at : at + batch_size] for at in range(0, len(pool), batch_size)]
        return [batches[i] for i in random.permutation(len(batches))]

    def _class_cautions(self, split: Split, tally: Tally) -> Iterator[Caution]:
        counts = {name: tally.labels[i] for i, name in enumerate(self.class_names)}
        most, least = max(counts, key=counts.__getitem__), min(counts, key=counts.__getitem__)
        share = counts[most] / tally.n_examples
        if share == 1:
            text = f"all {tally.n_examples} examples of {split} are `{most}`"
            yield Caution(code="single_class", text=text, hint="accuracy says nothing here: choose other examples")
        elif share > UNBALANCED_SHARE or counts[most] > UNBALANCED_RATIO * counts[least]:
            text = f"{split} is unbalanced: `{most}` {counts[most]} examples, `{least}` {counts[least]}"
            hint = f"always answering `{most}` is right in {share:.1%}: compare accuracy with that"
            yield Caution(code="unbalanced_classes", text=text, hint=hint)


def _all_texts(examples: Iterable[TextExample]) -> Iterator[str]:
    for example in examples:
        yield example.text
        if example.text_pair is not None:
            yield example.text_pair


def _empty(split: Split) -> EffauditError:
    return EffauditError(f"the {split} split has no examples", "check the file, or choose another split or limit")


def _text_cautions(split: Split, tally: Tally, max_tokens: int) -> Iterator[Caution]:
    found = {
        "truncated_texts": (tally.n_truncated, f"longer than {max_tokens} tokens and cut", "raise max_tokens"),
        "empty_texts": (tally.n_empty, "without a word, read as one unknown word", "check the text columns"),
        "nul_bytes": (tally.n_nul, "with NUL bytes, read as spaces", "check how the file was written"),
    }
    for code, (n, what, hint) in found.items():
        if n:
            text = f"{n} of {tally.n_examples} texts of {split} ({n / tally.n_examples:.1%}) {what}"
            yield Caution(code=code, text=text, hint=hint)
    if tally.n_unknown:
        share = tally.n_unknown / tally.n_words
        text = f"{tally.n_unknown} of {tally.n_words} words of {split} ({share:.1%}) are not in the vocabulary"
        yield Caution(code="unknown_words", text=text, hint="they count as one unknown word")
