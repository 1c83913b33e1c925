"""`imdb`: film reviews, negative or positive (Maas et al. 2011), as one table a split.

Takes JSONL rows `{"text": …, "label": 0-1}` or CSV files with a header and the same columns; `<br />` is read as
a space.
"""

from __future__ import annotations

from tokenizers import Tokenizer

from effaudit.datasets._preset import CSV_FILES, JSONL_FILES, Edition, Options, numbered, open_preset
from effaudit.datasets._table import Layout
from effaudit.datasets._text import TextClassification
from effaudit.profile_spec import DataSpec
from effaudit.workload import Split

__all__ = ["Options", "open_dataset"]

CLASS_NAMES = ("neg", "pos")
SMALL_FILES: dict[Split, tuple[str, ...]] = {"train": ("train_small.jsonl",), "test": ("test_small.jsonl",)}


def without_breaks(text: str) -> str:
    return text.replace("<br />", " ")


LAYOUT = Layout(("text",), "label", numbered(CLASS_NAMES, 0), clean=without_breaks)
EDITIONS = (Edition(JSONL_FILES, LAYOUT), Edition(CSV_FILES, LAYOUT), Edition(SMALL_FILES, LAYOUT))


def open_dataset(spec: DataSpec, tokenizer: Tokenizer | None = None) -> TextClassification:
    """IMDB from the folder `spec.path`.

    Raises EffauditError that says which files are expected where.
    """
    return open_preset(spec, tokenizer, CLASS_NAMES, EDITIONS)
