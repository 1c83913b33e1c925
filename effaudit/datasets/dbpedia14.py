"""`dbpedia14`: abstracts of Wikipedia articles in 14 kinds of things; 560,000 rows for training, 70,000 for testing.

Takes the official CSV files (class 1-14, title, content, no header) or JSONL rows `{"text": …, "label": 0-13}`.
"""

from __future__ import annotations

from tokenizers import Tokenizer

from effaudit.datasets._preset import CSV_FILES, JSONL_FILES, Edition, Options, numbered, open_preset
from effaudit.datasets._table import Layout
from effaudit.datasets._text import TextClassification
from effaudit.profile_spec import DataSpec

__all__ = ["Options", "open_dataset"]

CLASS_NAMES = (
    "Company",
    "EducationalInstitution",
    "Artist",
    "Athlete",
    "OfficeHolder",
    "MeanOfTransportation",
    "Building",
    "NaturalPlace",
    "Village",
    "Animal",
    "Plant",
    "Album",
    "Film",
    "WrittenWork",
)

EDITIONS = (
    Edition(JSONL_FILES, Layout(("text",), "label", numbered(CLASS_NAMES, 0))),
    Edition(CSV_FILES, Layout((1, 2), 0, numbered(CLASS_NAMES, 1), has_header=False)),
)


def open_dataset(spec: DataSpec, tokenizer: Tokenizer | None = None) -> TextClassification:
    """DBpedia-14 from the folder `spec.path`.

    Raises EffauditError that says which files are expected where.
    """
    return open_preset(spec, tokenizer, CLASS_NAMES, EDITIONS)
