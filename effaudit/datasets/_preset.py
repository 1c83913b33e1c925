"""Well-known classification sets in the user's folder: their classes, files and layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from effaudit.datasets._folder import find_files
from effaudit.datasets._table import CALIBRATION_SHARE, Layout, Part, examples_of
from effaudit.datasets._text import TextClassification
from effaudit.profile_spec import DataSpec, Spec, validated
from effaudit.workload import Split

JSONL_FILES: Mapping[Split, tuple[str, ...]] = {"train": ("train.jsonl",), "test": ("test.jsonl",)}
CSV_FILES: Mapping[Split, tuple[str, ...]] = {"train": ("train.csv",), "test": ("test.csv",)}


class Options(Spec):
    """Presets have no options."""


@dataclass(frozen=True)
class Edition:
    """One way a set is handed round: accepted names of its files (best first), and their layout."""

    files: Mapping[Split, tuple[str, ...]]
    layout: Layout


def numbered(class_names: Sequence[str], first: int) -> dict[str, int]:
    """The labels of a column that counts classes from `first`."""
    return {str(first + i): i for i in range(len(class_names))}


def open_preset(
    spec: DataSpec, tokenizer: Tokenizer | None, class_names: Sequence[str], editions: Sequence[Edition]
) -> TextClassification:
    """The first edition that is complete in the folder `spec.path`; files may be gzipped.

    Without a calibration file, a fixed tenth of the training file is kept from training for it.
    Raises EffauditError that says which files are expected where.
    """
    validated(Options, spec.options, f"data options of `{spec.kind}`")
    accepted = [{s: [*names, *(f"{n}.gz" for n in names)] for s, names in e.files.items()} for e in editions]
    number, files = find_files(spec, accepted)
    layout = editions[number].layout
    parts: dict[Split, Part] = {split: Part(path, layout) for split, path in files.items()}
    if "calibration" not in parts:
        parts["calibration"] = Part(files["train"], layout, stop=CALIBRATION_SHARE)
        parts["train"] = Part(files["train"], layout, start=CALIBRATION_SHARE)
    return TextClassification(examples_of(parts), class_names, spec.max_tokens, spec.vocab_size, tokenizer)
