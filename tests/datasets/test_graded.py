from __future__ import annotations

import hashlib
from collections import Counter
from itertools import chain, islice

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.stats import spearmanr

from effaudit.datasets import graded
from effaudit.datasets._dataset import TextExample
from effaudit.errors import EffauditError
from effaudit.profile_spec import DataSpec

LEVELS = (1, 2, 3, 4)
CLASS_OF = {word: label for label, words in enumerate(graded.KEYWORDS.values()) for word in words}


@pytest.fixture(scope="module")
def train() -> list[TextExample]:
    return list(graded.examples("train", graded.Options(n_train=16_000)))


@pytest.fixture(scope="module")
def test() -> list[TextExample]:
    return list(graded.examples("test", graded.Options(n_test=4096)))


def key_sentences(example: TextExample) -> list[list[str]]:
    """The sentences before the neutral ones, as words; levels 2 to 4."""
    sentences = [sentence.split() for sentence in example.text.split(" .")]
    return [words for words in sentences if words and words[0] not in ("the", "thanks", "many")]


def solve(example: TextExample) -> int:
    """The class, read from the text as the module's docstring explains it."""
    keywords = [word for word in example.text.split() if word in CLASS_OF]
    if example.difficulty == 1:
        (keyword,) = keywords
        return CLASS_OF[keyword]
    if example.difficulty == 2:
        first, second = keywords
        assert CLASS_OF[first] != CLASS_OF[second]
        is_second = {"but", "forget", "dropped"} & set(example.text.split())
        return CLASS_OF[second if is_second else first]
    ask, *facts = key_sentences(example)
    says = {words[0]: words[2] for words in facts}
    answer = says[ask[1]]
    return CLASS_OF[says[answer] if example.difficulty == 4 else answer]


def test_class_follows_from_the_text(test: list[TextExample]) -> None:
    assert [solve(example) for example in test] == [example.label for example in test]


def test_right_keyword_of_level_two_stands_first_as_often_as_last(test: list[TextExample]) -> None:
    pairs = [(e.label, next(w for w in e.text.split() if w in CLASS_OF)) for e in test if e.difficulty == 2]
    assert 0.45 < np.mean([CLASS_OF[first] == label for label, first in pairs]) < 0.55


@pytest.mark.parametrize("level", [3, 4])
def test_every_class_is_named_once_on_the_upper_levels(test: list[TextExample], level: int) -> None:
    for example in test:
        if example.difficulty == level:
            assert sorted(CLASS_OF[w] for w in example.text.split() if w in CLASS_OF) == [0, 1, 2, 3]


def test_levels_and_classes_are_balanced(test: list[TextExample]) -> None:
    for examples in (test, test[:16], test[160:320]):
        counts = Counter((example.difficulty, example.label) for example in examples)
        assert counts == {(level, label): len(examples) // 16 for level in LEVELS for label in range(4)}


def test_length_tells_neither_level_nor_class(train: list[TextExample]) -> None:
    lengths = [len(example.text.split()) for example in train]
    assert (min(lengths), max(lengths)) == (graded.MIN_TOKENS, graded.MAX_TOKENS)
    for other in ([int(e.difficulty or 0) for e in train], [e.label for e in train]):
        assert abs(spearmanr(lengths, other).statistic) < 0.03
    for level in LEVELS:
        mean = np.mean([n for n, e in zip(lengths, train, strict=True) if e.difficulty == level])
        assert mean == pytest.approx((graded.MIN_TOKENS + graded.MAX_TOKENS) / 2, abs=0.4)


def counts_of_words(examples: list[TextExample]) -> npt.NDArray[np.float64]:
    tokenizer = graded.fixed_tokenizer()
    size = tokenizer.get_vocab_size()
    return np.array([np.bincount(tokenizer.encode(e.text).ids, minlength=size) for e in examples], dtype=np.float64)


def bag_of_words_accuracy(train: list[TextExample], test: list[TextExample]) -> float:
    """Multinomial naive Bayes on word counts, Laplace-smoothed; the classes are equally frequent."""
    x, labels = counts_of_words(train), np.array([e.label for e in train])
    totals = np.stack([x[labels == label].sum(axis=0) + 1 for label in range(4)])  # (C, V)
    log_likelihood = np.log(totals / totals.sum(axis=1, keepdims=True))
    predicted = (counts_of_words(test) @ log_likelihood.T).argmax(axis=1)
    return float(np.mean(predicted == [e.label for e in test]))


@pytest.mark.parametrize(("level", "low", "high"), [(1, 0.99, 1.0), (2, 0.4, 0.6), (3, 0.2, 0.3), (4, 0.2, 0.3)])
def test_bag_of_words(train: list[TextExample], test: list[TextExample], level: int, low: float, high: float) -> None:
    """Trained on the level alone; 1024 test examples, so chance is 0.25 with a standard error of 0.014."""
    accuracy = bag_of_words_accuracy(
        [e for e in train if e.difficulty == level], [e for e in test if e.difficulty == level]
    )
    assert low <= accuracy <= high


def test_splits_share_no_content_whatever_the_seed(train: list[TextExample], test: list[TextExample]) -> None:
    other_seed = graded.examples("train", graded.Options(seed=1, n_train=4000))
    calibration = list(graded.examples("calibration", graded.Options()))
    contents = [
        {str(key_sentences(e)) for e in examples if e.difficulty != 1}
        for examples in (chain(train, other_seed), test, calibration)
    ]
    assert all(contents)
    assert contents[0].isdisjoint(contents[1] | contents[2])
    assert contents[1].isdisjoint(contents[2])


def test_example_depends_on_seed_split_and_index_alone(test: list[TextExample]) -> None:
    assert list(graded.examples("test", graded.Options(n_test=64, n_train=1))) == test[:64]
    for different in (
        graded.examples("test", graded.Options(seed=1)),
        graded.examples("calibration", graded.Options()),
    ):
        assert not {e.text for e in islice(different, 64)} & {e.text for e in test[:64]}


def test_content_is_the_same_in_every_process(test: list[TextExample]) -> None:
    """Weights and accepted records are tied to this very content."""
    digest = hashlib.sha256("\n".join(f"{e.difficulty} {e.label} {e.text}" for e in test[:256]).encode()).hexdigest()
    assert digest[:16] == "04b55098ee9e2f62"


def test_dataset_carries_difficulty_and_labels(test: list[TextExample]) -> None:
    dataset = graded.open_dataset(DataSpec(options={"n_test": 128}))
    assert (dataset.n_classes, dataset.class_names) == (4, ("sport", "music", "health", "travel"))
    seen = 0
    for batch in dataset.batches("test", batch_size=32):
        assert batch.difficulty is not None
        expected = [test[i] for i in batch.index.tolist()]
        assert batch.difficulty.tolist() == [e.difficulty for e in expected]
        assert batch.labels.tolist() == [e.label for e in expected]
        assert batch.mask.sum(dim=1).tolist() == [len(e.text.split()) for e in expected]
        seen += batch.n_examples
    assert seen == 128
    assert dataset.cautions() == ()  # no word is unknown, no text is cut


def test_training_batches_repeat(train: list[TextExample]) -> None:
    dataset = graded.open_dataset(DataSpec(options={"n_train": 256}))
    first, second = (next(dataset.training_batches(32, seed=5, first_step=3)) for _ in range(2))
    assert torch.equal(first.tokens, second.tokens)
    assert first.labels.tolist() == [train[i].label for i in first.index.tolist()]
    assert first.difficulty is not None


def test_tokenizer_is_fixed_and_a_given_one_is_used() -> None:
    small, large = (graded.open_dataset(DataSpec(options={"n_train": n})).tokenizer for n in (1, 100))
    assert small is not None
    assert large is not None
    assert small.get_vocab() == large.get_vocab()
    assert graded.open_dataset(DataSpec(), small).tokenizer is small


def test_unknown_option_names_the_right_one() -> None:
    with pytest.raises(EffauditError, match="n_trian") as caught:
        graded.open_dataset(DataSpec(options={"n_trian": 10}))
    assert "n_train" in caught.value.hint
