"""Batches of labelled texts: padding, cutting, order, training epochs, cautions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from effaudit.datasets import _text
from effaudit.datasets._dataset import TextExample
from effaudit.datasets._text import TextClassification
from effaudit.datasets._tokenize import character_tokenizer
from effaudit.errors import EffauditError
from effaudit.workload import Split

WORDS = [f"w{i}" for i in range(50)]
VOCABULARY = TextExample(" ".join(WORDS * 2), 0)  # makes every word known


def opened(
    examples: Sequence[TextExample], max_tokens: int = 16, class_names: Sequence[str] = "ab"
) -> TextClassification:
    """A dataset whose test split is `examples`, trained on them too."""

    def stream(split: Split) -> Iterator[TextExample]:
        yield from ([VOCABULARY] if split == "train" else [])
        yield from examples

    return TextClassification(stream, "ab", max_tokens, 1000)


def random_examples(n: int, n_words: int = 12) -> list[TextExample]:
    random = Random(0)
    return [TextExample(" ".join(random.choices(WORDS, k=random.randint(1, n_words))), i % 2) for i in range(n)]


def test_batches_are_the_encoded_texts_padded_and_sorted_by_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_text, "POOL", 2)
    examples = random_examples(50)
    dataset = opened(examples)
    assert dataset.tokenizer is not None
    batches = list(dataset.batches("test", 8))
    assert [batch.n_examples for batch in batches] == [8, 8, 8, 8, 8, 8, 2]
    seen = []
    for batch in batches:
        assert batch.is_padded == (not bool(batch.mask.all()))
        assert batch.mask[:, -1].any()  # no wider than its longest
        for tokens, mask, label, index in zip(batch.tokens, batch.mask, batch.labels, batch.index, strict=True):
            example = examples[int(index)]
            assert tokens[mask].tolist() == dataset.tokenizer.encode(example.text).ids
            assert tokens[~mask].eq(0).all()
            assert mask[: int(mask.sum())].all()
            assert int(label) == example.label
            seen.append(int(index))
    assert sorted(seen[:16]) == list(range(16))  # a pool at a time
    assert sorted(seen) == list(range(50))
    lengths = [int(n) for batch in batches[:2] for n in batch.mask.sum(1)]
    assert lengths == sorted(lengths)


def test_streams_no_more_than_a_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_text, "POOL", 2)
    dataset, n_read = opened(random_examples(1)), 0

    def endless(split: Split) -> Iterator[TextExample]:
        nonlocal n_read
        while True:
            n_read += 1
            yield TextExample("w1 w2", 0)

    dataset._examples = endless
    assert len(list(islice(dataset.batches("test", 4), 5))) == 5
    assert n_read == 24
    assert sum(batch.n_examples for batch in dataset.batches("test", 4, limit=6)) == 6


@given(n_first=st.integers(1, 30), n_second=st.integers(1, 30), max_tokens=st.integers(2, 24))
def test_pairs_lose_words_of_the_longer_text_first(n_first: int, n_second: int, max_tokens: int) -> None:
    first, second = WORDS[:n_first], WORDS[20 : 20 + n_second]
    dataset = opened([TextExample(" ".join(first), 0, " ".join(second))], max_tokens)
    while len(first) + len(second) + 1 > max_tokens:
        (first if len(first) > len(second) else second).pop()
    (batch,) = dataset.batches("test", 1)
    assert dataset.tokenizer is not None
    tokens = [dataset.tokenizer.id_to_token(i) for i in batch.tokens[0].tolist()]
    assert tokens == [*first, "[SEP]", *second]


def test_training_epochs_hold_every_example_once_and_start_anywhere() -> None:
    dataset = opened(random_examples(40))
    steps = list(islice(dataset.training_batches(8, seed=5), 12))  # 41 examples: six steps an epoch
    for epoch in (steps[:6], steps[6:]):
        assert sorted(torch.cat([batch.index for batch in epoch]).tolist()) == list(range(41))
    assert [b.index.tolist() for b in steps[:6]] != [b.index.tolist() for b in steps[6:]]
    for first in (0, 4, 6, 11):
        again = next(dataset.training_batches(8, seed=5, first_step=first))
        assert torch.equal(again.tokens, steps[first].tokens)
    other = next(dataset.training_batches(8, seed=6))
    assert not torch.equal(other.index, steps[0].index)


def test_training_batches_are_of_like_length() -> None:
    dataset = opened(random_examples(800))
    for batch in islice(dataset.training_batches(16, seed=0), 50):
        lengths = batch.mask.sum(1)
        assert int(lengths.max() - lengths.min()) <= 4  # random texts of 1 to 12 words: nearly always 11 apart


def test_difficulty_is_kept() -> None:
    dataset = opened([TextExample("w1", 0, difficulty=2.0), TextExample("w1 w2", 1, difficulty=4.0)])
    (batch,) = dataset.batches("test", 2)
    assert batch.difficulty is not None
    assert batch.difficulty.tolist() == [2.0, 4.0]
    (plain,) = opened([TextExample("w1", 0)]).batches("test", 1)
    assert plain.difficulty is None


def test_hash_covers_text_pair_and_label() -> None:
    hashes = {
        opened([example]).sha256("test")
        for example in (
            TextExample("w1", 0),
            TextExample("w1", 1),
            TextExample("w2", 0),
            TextExample("w1", 0, ""),
            TextExample("", 0, "w1"),
        )
    }
    assert len(hashes) == 5
    assert opened([TextExample("w1", 0)]).sha256("test") in hashes


def codes(dataset: TextClassification, n: int | None = None) -> dict[str, str]:
    list(dataset.batches("test", 4, n))
    return {caution.code: caution.text for caution in dataset.cautions()}


def test_cautions_count_once_however_often_the_split_is_read() -> None:
    examples = [
        TextExample(" ".join(WORDS), 0),
        TextExample("", 1),
        TextExample("w1\0w2 strange words", 0),
        TextExample("\t \n", 1),
    ]
    dataset = opened(examples)
    list(dataset.batches("test", 2))
    found = codes(dataset)
    assert found == {
        "truncated_texts": "1 of 4 texts of test (25.0%) longer than 16 tokens and cut",
        "empty_texts": "2 of 4 texts of test (50.0%) without a word, read as one unknown word",
        "nul_bytes": "1 of 4 texts of test (25.0%) with NUL bytes, read as spaces",
        "unknown_words": "2 of 54 words of test (3.7%) are not in the vocabulary",
    }
    assert codes(dataset, 1) == found  # a shorter pass says nothing new
    (batch,) = dataset.batches("test", 4)
    assert batch.mask.sum(1).tolist() == [1, 1, 4, 16]
    assert batch.tokens[0, 0] == 1


def test_unbalanced_and_single_class_splits_are_said() -> None:
    balanced = [TextExample("w1", i % 2) for i in range(10)]
    assert codes(opened(balanced)) == {}
    skewed = codes(opened([*balanced, *[TextExample("w1", 0)] * 11]))
    assert skewed == {"unbalanced_classes": "test is unbalanced: `a` 16 examples, `b` 5"}
    assert codes(opened([TextExample("w1", 1)] * 3)) == {"single_class": "all 3 examples of test are `b`"}


def test_empty_splits_are_errors() -> None:
    with pytest.raises(EffauditError, match="the train split has no examples"):
        TextClassification(lambda split: iter(()), "ab", 8, 100)
    dataset = opened([])
    with pytest.raises(EffauditError, match="the test split has no examples"):
        list(dataset.batches("test", 4))


def test_tokenizer_of_another_task_is_refused() -> None:
    with pytest.raises(EffauditError, match=r"tokenizer has no `\[PAD\]` symbol"):
        TextClassification(lambda split: iter(()), "ab", 8, 100, character_tokenizer("abc", has_unknown=True))


def test_errors_of_the_source_pass_through_fitting() -> None:
    def broken(split: Split) -> Iterator[TextExample]:
        yield TextExample("w1", 0)
        raise EffauditError("line 2 is bad")

    with pytest.raises(EffauditError, match="line 2 is bad"):
        TextClassification(broken, "ab", 8, 100)
