"""How text becomes ids, at character and at word level, through the `tokenizers` library."""

from __future__ import annotations

import os
from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

PADDING, UNKNOWN, SEPARATOR = "[PAD]", "[UNK]", "[SEP]"
WORD_SPECIALS = (PADDING, UNKNOWN, SEPARATOR)  # ids 0, 1, 2

# Rarer words become unknown, so that the unknown symbol is trained too.
MIN_WORD_COUNT = 2

# Words, single punctuation marks, and English endings split off as in the Penn Treebank, so that raw and
# treebank-tokenised text ("isn't", "is n't") give the same ids.
WORDS = r"\w+?(?=n't\b)|n't\b|'(?:s|m|d|re|ve|ll)\b|\w+|[^\w\s]"

# One thread: no surprise beside a timed model, and no warning or deadlock in processes that fork.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def character_tokenizer(symbols: Iterable[str], has_unknown: bool) -> Tokenizer:
    """One id per symbol, in code point order; with `has_unknown`, id 0 is what every other symbol becomes."""
    listing = ([UNKNOWN] if has_unknown else []) + sorted(symbols)
    vocabulary = {symbol: i for i, symbol in enumerate(listing)}
    model = models.WordLevel(vocabulary, unk_token=UNKNOWN) if has_unknown else models.WordLevel(vocabulary)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def word_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Lower-cased words and punctuation marks, the most frequent of `texts`; at most `vocab_size` ids."""
    counter = _words_with({})
    trainer = trainers.WordLevelTrainer(
        vocab_size=vocab_size, min_frequency=MIN_WORD_COUNT, special_tokens=list(WORD_SPECIALS), show_progress=False
    )
    counter.train_from_iterator(texts, trainer)
    # Built anew: a trained tokenizer would also find "[PAD]" inside a text.
    return _words_with(counter.get_vocab())


def _words_with(vocabulary: dict[str, int]) -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Lowercase(),
            normalizers.Replace(Regex("[\u2018\u2019]"), "'"),
            normalizers.Replace(Regex("[\u201c\u201d]|``|''"), '"'),
            normalizers.Replace(Regex(r"\bcannot\b"), "can not"),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(WORDS), behavior="removed", invert=True)
    return tokenizer
