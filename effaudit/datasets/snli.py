"""`snli`: does the second sentence follow from the first? Stanford Natural Language Inference, its own dev file.

Takes the official JSONL files (rows without a gold label are left out) or rows
`{"text": …, "text_pair": …, "label": 0-2}`. Some copies are raw text, some tokenised as in the Penn Treebank; the
tokenizer gives both the same ids ("isn't" and "is n't", "cannot" and "can not", all kinds of quotes), and sentences
that still carry the quoting of a CSV file (`"a ""red"" sign"`) are unquoted.
"""

from __future__ import annotations

from tokenizers import Tokenizer

from effaudit.datasets._preset import Edition, Options, numbered, open_preset
from effaudit.datasets._table import Layout
from effaudit.datasets._text import TextClassification
from effaudit.profile_spec import DataSpec
from effaudit.workload import Split

__all__ = ["Options", "open_dataset"]

CLASS_NAMES = ("entailment", "neutral", "contradiction")
NO_GOLD_LABEL = frozenset("-")

FILES: dict[Split, tuple[str, ...]] = {
    "train": ("train.jsonl",),
    "calibration": ("dev.jsonl", "dev_tokenised.jsonl"),
    "test": ("test.jsonl", "test_tokenised.jsonl"),
}
OFFICIAL_FILES: dict[Split, tuple[str, ...]] = {
    "train": ("snli_1.0_train.jsonl",),
    "calibration": ("snli_1.0_dev.jsonl",),
    "test": ("snli_1.0_test.jsonl",),
}


def unquoted(text: str) -> str:
    """The sentence without the quoting of a CSV file, if it still has that."""
    is_quoted = len(text) > 2 and text[0] == text[-1] == '"' and '""' in text
    return text[1:-1].replace('""', '"') if is_quoted else text


_BY_NUMBER = Layout(("text",), "label", numbered(CLASS_NAMES, 0), text_pair="text_pair", clean=unquoted)
_BY_NAME = Layout(
    ("sentence1",),
    "gold_label",
    {name: i for i, name in enumerate(CLASS_NAMES)},
    text_pair="sentence2",
    skipped=NO_GOLD_LABEL,
    clean=unquoted,
)
EDITIONS = (Edition(FILES, _BY_NUMBER), Edition(OFFICIAL_FILES, _BY_NAME))


def open_dataset(spec: DataSpec, tokenizer: Tokenizer | None = None) -> TextClassification:
    """SNLI from the folder `spec.path`.

    Raises EffauditError that says which files are expected where.
    """
    return open_preset(spec, tokenizer, CLASS_NAMES, EDITIONS)
