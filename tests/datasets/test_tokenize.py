"""Word-level tokenisation."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer

from effaudit.datasets._tokenize import word_tokenizer


def words(tokenizer: Tokenizer, text: str) -> list[str]:
    tokens: list[str] = tokenizer.encode(text).tokens
    return tokens


def tokenizer_that_knows(*texts: str) -> Tokenizer:
    return word_tokenizer([*texts, *texts], 10_000)


@pytest.mark.parametrize(
    ("raw", "treebank"),
    [
        ("She isn't here, and can't come.", "She is n't here , and ca n't come ."),
        ("The dog's owner; the girls' hats", "The dog 's owner ; the girls ' hats"),
        ("I'm sure they've left", "I 'm sure they 've left"),
        ('A sign "STOP!" (red)', "A sign `` STOP ! '' ( red )"),
        ("He cannot see \u201cit\u201d \u2018now\u2019", "He can not see `` it '' ' now '"),
        ("a t-shirt, U.S. size", "a t-shirt , U.S. size"),
    ],
)
def test_raw_and_treebank_text_have_the_same_ids(raw: str, treebank: str) -> None:
    tokenizer = tokenizer_that_knows(raw)
    assert words(tokenizer, raw) == words(tokenizer, treebank)
    assert "[UNK]" not in words(tokenizer, raw)


def test_vocabulary_is_the_most_frequent_words_after_the_specials() -> None:
    tokenizer = word_tokenizer(["b b b a a c c d"], 6)
    vocabulary = tokenizer.get_vocab()
    assert sorted(vocabulary, key=vocabulary.__getitem__) == ["[PAD]", "[UNK]", "[SEP]", "b", "a", "c"]
    assert words(tokenizer, "A d C") == ["a", "[UNK]", "c"]


def test_text_cannot_write_special_symbols() -> None:
    tokenizer = tokenizer_that_knows("x")
    assert tokenizer.encode("[PAD] [SEP]").ids == [1] * 6


def test_saved_tokenizer_gives_the_same_ids() -> None:
    tokenizer = tokenizer_that_knows("Isn't this “fine”?")
    saved = Tokenizer.from_str(tokenizer.to_str())
    assert saved.encode("is n't this 'other' fine").ids == tokenizer.encode("is n't this 'other' fine").ids
