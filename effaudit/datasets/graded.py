"""`graded`: notes in plain English whose class takes one, two or more facts of the text to tell.

Every note belongs to one of four desks (sport, music, health, travel) and to one of four levels:

1. One keyword says it, anywhere in the text: "the report mentions tennis ."
2. Two keywords of different desks, and a cue that says which one counts: "it is not tennis but opera .",
   "choose opera instead of tennis ." The right one stands first as often as last.
3. One association: "ask bob . ann handles tennis . bob handles opera . …", each of four people with the keyword of
   another desk. The class is the desk of bob's keyword.
4. Two associations: as level 3, and one to three assistants, "ask gus . … gus assists bob . hana assists ann .".
   The class is the desk of what is handled by the person whom gus assists. Who follows the assistants but not
   the question is right in 61 % of the cases (1, 1/2 and 1/3 with one, two and three assistants).

On levels 3 and 4 every text holds one keyword of each desk, and who handles what is drawn anew each time, so the
words alone, without their order, say nothing about the class; on level 2 they leave two classes.

So that a small model learns all levels within minutes, these sentences come first, and the people are the same
four in alphabetical order: their place can stand for their name. Neutral sentences then fill each text to a
length drawn from the same range for all levels: length tells neither level nor class. Levels and classes take
turns, so every 16 consecutive examples are balanced.

Example i of a split depends on the seed, the split and i alone. The sentences that matter, whatever their
filling, belong to one split only, by their checksum: what is tested was never seen in training.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from random import Random
from typing import Annotated

from pydantic import Field
from tokenizers import Tokenizer, models, pre_tokenizers

from effaudit.datasets._dataset import TextExample
from effaudit.datasets._text import TextClassification
from effaudit.datasets._tokenize import UNKNOWN, WORD_SPECIALS
from effaudit.profile_spec import Count, DataSpec, Integer, Spec, validated
from effaudit.workload import Split

MIN_TOKENS, MAX_TOKENS = 32, 48  # the longest sentences of level 4 take 31
# Share of all possible contents that each split may use, in eighths.
SPLIT_OF_EIGHTH: tuple[Split, ...] = ("train",) * 6 + ("calibration", "test")


def _list(words: str) -> list[str]:
    return words.split()


KEYWORDS = {
    "sport": _list("football tennis hockey rugby swimming cycling boxing golf"),
    "music": _list("piano guitar opera jazz choir violin drums melody"),
    "health": _list("fever doctors nurses vaccines clinics surgery allergies diet"),
    "travel": _list("hotels airports luggage passports cruises flights beaches tourists"),
}
CLASS_NAMES = tuple(KEYWORDS)
HANDLERS = _list("ann bob carl dora")
ASSISTANTS = _list("gus hana ivan")

SUBJECTS = _list("report letter article message page summary")
MENTIONS = ["mentions", "concerns", "describes", "is about"]
# {0} counts, {1} does not.
CHOICES = [
    "it is not {1} but {0} .",
    "forget {1} and take {0} .",
    "they dropped {1} for {0} .",
    "choose {0} instead of {1} .",
    "keep {0} rather than {1} .",
    "it is {0} and never {1} .",
]

NOUNS = _list(
    "window garden kitchen river bridge lamp table chair basket ladder paper pencil drawer clock carpet "
    "mirror village corner bakery station tower market meadow fence orchard cloud candle bottle kettle "
    "bucket"
)
ADJECTIVES = _list("old small green quiet heavy bright narrow wooden empty round plain dusty warm cold tall pale")
VERBS = _list("stood waited changed remained fell moved appeared vanished turned stopped shone rested")
ADVERBS = _list("slowly again today early often nearby soon quietly once later")
PREPOSITIONS = _list("near behind under beside above past")
SHORT_FILLERS = {1: "thanks", 2: "thanks .", 3: "many thanks ."}
MIN_SENTENCE, MAX_SENTENCE = 4, 9  # tokens of a longer filler


class Options(Spec):
    """Options of the `graded` dataset."""

    seed: Annotated[Integer, Field(ge=0)] = 0
    n_train: Count = 40_000
    n_calibration: Count = 1024
    n_test: Count = 2048

    def n_examples(self, split: Split) -> int:
        return {"train": self.n_train, "calibration": self.n_calibration, "test": self.n_test}[split]


def _keyword(random: Random, label: int) -> str:
    return random.choice(KEYWORDS[CLASS_NAMES[label]])


def _one_keyword(random: Random, label: int) -> list[str]:
    return [f"the {random.choice(SUBJECTS)} {random.choice(MENTIONS)} {_keyword(random, label)} ."]


def _two_keywords(random: Random, label: int) -> list[str]:
    other = (label + random.randrange(1, len(CLASS_NAMES))) % len(CLASS_NAMES)
    return [random.choice(CHOICES).format(_keyword(random, label), _keyword(random, other))]


def _handlers(random: Random) -> tuple[list[str], list[str]]:
    """The person of each class, and the sentences that say who handles what."""
    people = random.sample(HANDLERS, len(CLASS_NAMES))
    facts = [f"{person} handles {_keyword(random, label)} ." for label, person in enumerate(people)]
    return people, sorted(facts)


def _one_association(random: Random, label: int) -> list[str]:
    people, facts = _handlers(random)
    return [f"ask {people[label]} .", *facts]


def _two_associations(random: Random, label: int) -> list[str]:
    people, facts = _handlers(random)
    assistants = random.sample(ASSISTANTS, random.randint(1, len(ASSISTANTS)))
    others = random.sample(people[:label] + people[label + 1 :], len(assistants) - 1)
    pairs = zip(assistants, [people[label], *others], strict=True)
    links = [f"{assistant} assists {person} ." for assistant, person in pairs]
    return [f"ask {assistants[0]} .", *facts, *sorted(links)]


_SENTENCES_OF_LEVEL: tuple[Callable[[Random, int], list[str]], ...] = (
    _one_keyword,
    _two_keywords,
    _one_association,
    _two_associations,
)


def _split_of(sentences: list[str]) -> Split:
    """The one split that may use these sentences."""
    return SPLIT_OF_EIGHTH[zlib.crc32(" ".join(sentences).encode()) % len(SPLIT_OF_EIGHTH)]


def _filler(random: Random, n_tokens: int) -> str:
    """A neutral sentence of `n_tokens`, at most MAX_SENTENCE."""
    if n_tokens < MIN_SENTENCE:
        return SHORT_FILLERS[n_tokens]
    extra = n_tokens - MIN_SENTENCE
    place = f"{random.choice(PREPOSITIONS)} the {random.choice(NOUNS)} " if extra >= 3 else ""
    extra -= 3 if place else 0
    adjective = f"{random.choice(ADJECTIVES)} " if extra >= 1 else ""
    adverb = f"{random.choice(ADVERBS)} " if extra >= 2 else ""
    return f"the {adjective}{random.choice(NOUNS)} {random.choice(VERBS)} {adverb}{place}."


def _fillers(random: Random, n_tokens: int) -> list[str]:
    """Neutral sentences of `n_tokens` together."""
    sentences = []
    while n_tokens > 0:
        length = min(n_tokens, random.randint(MIN_SENTENCE, MAX_SENTENCE))
        sentences.append(_filler(random, length))
        n_tokens -= length
    return sentences


def _example(split: Split, index: int, seed: int) -> TextExample:
    random = Random(f"{seed}-{split}-{index}")
    level, label = index % len(_SENTENCES_OF_LEVEL), index // len(_SENTENCES_OF_LEVEL) % len(CLASS_NAMES)
    n_tokens = random.randint(MIN_TOKENS, MAX_TOKENS)
    sentences = _SENTENCES_OF_LEVEL[level](random, label)
    while _split_of(sentences) != split:
        sentences = _SENTENCES_OF_LEVEL[level](random, label)
    sentences += _fillers(random, n_tokens - sum(len(sentence.split()) for sentence in sentences))
    if level == 0:
        random.shuffle(sentences)
    return TextExample(" ".join(sentences), label, difficulty=float(level + 1))


def examples(split: Split, options: Options) -> Iterator[TextExample]:
    """The examples of a split in order; difficulty is the level, 1 to 4."""
    return (_example(split, index, options.seed) for index in range(options.n_examples(split)))


def _vocabulary() -> list[str]:
    """Every word that a text can hold, sorted."""
    patterns = [*MENTIONS, *CHOICES, *SHORT_FILLERS.values(), "the ask handles assists"]
    words = {word for pattern in patterns for word in pattern.split() if "{" not in word}
    words.update(*KEYWORDS.values(), HANDLERS, ASSISTANTS, SUBJECTS)
    words.update(NOUNS, ADJECTIVES, VERBS, ADVERBS, PREPOSITIONS)
    return sorted(words)


def fixed_tokenizer() -> Tokenizer:
    """One id per word of the closed vocabulary, whatever the options."""
    vocabulary = {word: i for i, word in enumerate([*WORD_SPECIALS, *_vocabulary()])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


def open_dataset(spec: DataSpec, tokenizer: Tokenizer | None = None) -> TextClassification:
    """Nothing is fitted: without a tokenizer it is the fixed one."""
    options = validated(Options, spec.options, "data options of `graded`")
    return TextClassification(
        lambda split: examples(split, options),
        CLASS_NAMES,
        spec.max_tokens,
        spec.vocab_size,
        tokenizer or fixed_tokenizer(),
    )
