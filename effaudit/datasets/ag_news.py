"""`ag_news`: news titles and descriptions in four topics; 120,000 rows for training, 7,600 for testing.

Takes the official CSV files (class 1-4, title, description, no header) or JSONL rows
`{"text": title + " " + description, "label": 0-3}`. The set's damaged HTML is mended in both: entities whose `&`
became a space (" #39;" is an apostrophe), tags, and backslashes that stand for line ends.
"""

from __future__ import annotations

import html
import re

from tokenizers import Tokenizer

from effaudit.datasets._preset import CSV_FILES, JSONL_FILES, Edition, Options, numbered, open_preset
from effaudit.datasets._table import Layout
from effaudit.datasets._text import TextClassification
from effaudit.profile_spec import DataSpec

__all__ = ["Options", "open_dataset"]

CLASS_NAMES = ("World", "Sports", "Business", "Sci/Tech")

_ENTITY = re.compile(r"(?:^|[ &])(#\d+|quot|amp|lt|gt|nbsp|hellip|[lr][sd]quo|[mn]dash);")
_TAG = re.compile(r"<[^<>]*>")


def mended(text: str) -> str:
    """The text with entities resolved, tags dropped, backslashes read as spaces, and single spaces only."""
    unescaped = _ENTITY.sub(lambda match: html.unescape(f"&{match[1]};"), text)
    return " ".join(_TAG.sub(" ", unescaped).replace("\\", " ").split())


EDITIONS = (
    Edition(JSONL_FILES, Layout(("text",), "label", numbered(CLASS_NAMES, 0), clean=mended)),
    Edition(CSV_FILES, Layout((1, 2), 0, numbered(CLASS_NAMES, 1), has_header=False, clean=mended)),
)


def open_dataset(spec: DataSpec, tokenizer: Tokenizer | None = None) -> TextClassification:
    """AG News from the folder `spec.path`.

    Raises EffauditError that says which files are expected where.
    """
    return open_preset(spec, tokenizer, CLASS_NAMES, EDITIONS)
