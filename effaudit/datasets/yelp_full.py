"""`yelp_full`: Yelp reviews and their one to five stars; 650,000 rows for training, 50,000 for testing.

Takes the official CSV files (stars, text, no header) or JSONL rows `{"text": …, "label": 0-4}`. The two characters
`\\n`, with which the official files write line ends, are read as a space.
"""

from __future__ import annotations

from tokenizers import Tokenizer

from effaudit.datasets._preset import CSV_FILES, JSONL_FILES, Edition, Options, numbered, open_preset
from effaudit.datasets._table import Layout
from effaudit.datasets._text import TextClassification
from effaudit.profile_spec import DataSpec

__all__ = ["Options", "open_dataset"]

CLASS_NAMES = ("1 star", "2 stars", "3 stars", "4 stars", "5 stars")


def with_spaces(text: str) -> str:
    """The text with written-out line ends and doubled quotes made plain."""
    return text.replace("\\n", " ").replace('""', '"')


EDITIONS = (
    Edition(JSONL_FILES, Layout(("text",), "label", numbered(CLASS_NAMES, 0), clean=with_spaces)),
    Edition(CSV_FILES, Layout((1,), 0, numbered(CLASS_NAMES, 1), has_header=False, clean=with_spaces)),
)


def open_dataset(spec: DataSpec, tokenizer: Tokenizer | None = None) -> TextClassification:
    """Yelp Review Full from the folder `spec.path`.

    Raises EffauditError that says which files are expected where.
    """
    return open_preset(spec, tokenizer, CLASS_NAMES, EDITIONS)
