"""`table:<path>`: labelled texts of your own, CSV, TSV or JSONL, each also .gz.

The path is the training file, or, when neither `calibration` nor `test` names a file, the only one, split 80/10/10 by
a seeded draw for each row; or it is a folder, and the options name the files in it. With a test file and no
calibration file, a seeded tenth of the training file serves for calibration and is kept from training.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, field_validator
from tokenizers import Tokenizer

from effaudit.datasets._rows import Column, read_rows
from effaudit.datasets._table import CALIBRATION_SHARE, Layout, Part, examples_of, label_of
from effaudit.datasets._text import TextClassification
from effaudit.errors import EffauditError
from effaudit.profile_spec import DataSpec, Integer, Spec, validated
from effaudit.workload import Split

MAX_CLASSES = 1000  # more different labels than this are texts or numbers, not classes
TEST_SHARE = 0.1  # of a single file


def _no_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("put it in quotes: YAML reads yes, no, on and off as true or false")
    return value


def _as_list(value: object) -> object:
    return value if isinstance(value, list | tuple) else (value,)


Name = Annotated[Column, BeforeValidator(_no_boolean)]


class Options(Spec):
    """Columns are names, or numbers from 0 where `header` is false; files are relative to the path's folder."""

    text: Annotated[tuple[Name, ...], Field(min_length=1), BeforeValidator(_as_list)] = ("text",)  # joined by a space
    text_pair: Name | None = None
    label: Name = "label"
    difficulty: Name | None = None  # a column of numbers, larger is harder
    header: bool = True
    class_names: tuple[Name, ...] | None = None  # what the label column holds, in order of class
    train: str | None = None
    calibration: str | None = None
    test: str | None = None
    split_seed: Integer = 0

    @field_validator("class_names")
    @classmethod
    def _all_different(cls, names: tuple[Column, ...] | None) -> tuple[Column, ...] | None:
        if names is not None and len({str(name) for name in names}) < len(names):
            raise ValueError("two classes have the same name")
        return names


def open_dataset(spec: DataSpec, tokenizer: Tokenizer | None = None) -> TextClassification:
    """The table named after the colon.

    Raises EffauditError when a file, column or label is not there or not usable.
    """
    options = validated(Options, spec.options, "data options of `table`")
    path = spec.dataset.partition(":")[2]
    if not path:
        raise EffauditError("`table` needs a file or a folder", "write `table:<path>`")
    files = _files(Path(path).expanduser(), options)
    names = options.class_names or _labels_in(files["train"], options)
    class_names = tuple(str(name) for name in names)
    layout = Layout(
        text=options.text,
        label=options.label,
        labels={name: i for i, name in enumerate(class_names)},
        text_pair=options.text_pair,
        has_header=options.header,
        difficulty=options.difficulty,
    )
    parts = _parts(files, layout, options.split_seed)
    return TextClassification(examples_of(parts), class_names, spec.max_tokens, spec.vocab_size, tokenizer)


def _files(path: Path, options: Options) -> dict[Split, Path]:
    """The files by split, always one for training."""
    if not path.exists():
        raise EffauditError(f"no table `{path}`", "check the path after `table:`")
    folder = path if path.is_dir() else path.parent
    named: dict[Split, str | None] = {
        "train": options.train,
        "calibration": options.calibration,
        "test": options.test,
    }
    files = {split: folder / name for split, name in named.items() if name is not None}
    if path.is_dir() != ("train" in files):
        given = "is a folder" if path.is_dir() else "is the training file, and the option `train` names another"
        raise EffauditError(f"`{path}` {given}", "give a folder and the option `train`, or a file without it")
    for split, file in files.items():
        if not file.is_file():
            raise EffauditError(f"no {split} file `{file}`", f"option `{split}` is relative to `{folder}`")
    return {"train": path, **files}


def _parts(files: dict[Split, Path], layout: Layout, seed: int) -> dict[Split, Part]:
    """The rows of each split: a whole file, or a share of the training file kept from training."""
    parts: dict[Split, Part] = {split: Part(path, layout) for split, path in files.items()}
    kept = 0.0
    if "calibration" not in files:
        parts["calibration"] = Part(files["train"], layout, 0.0, CALIBRATION_SHARE, seed)
        kept = CALIBRATION_SHARE
    if files.keys() == {"train"}:
        kept = CALIBRATION_SHARE + TEST_SHARE
        parts["test"] = Part(files["train"], layout, CALIBRATION_SHARE, kept, seed)
    parts["train"] = Part(files["train"], layout, kept, 1.0, seed)
    return parts


def _labels_in(path: Path, options: Options) -> list[str]:
    """The different labels of a file, in order: of number if all are integers, of the alphabet otherwise."""
    found: set[str] = set()
    for row in read_rows(path, options.header):
        found.add(label_of(row, options.label))
        if len(found) > MAX_CLASSES:
            raise EffauditError(
                f"column `{options.label}` of `{path}` has more than {MAX_CLASSES} different labels",
                "name the column with the classes with the data option `label`",
            )
    if not found:
        raise EffauditError(f"`{path}` has no rows", "give a table with a row for each example")
    return _in_order(found)


def _in_order(labels: set[str]) -> list[str]:
    try:
        return sorted(sorted(labels), key=int)  # `1` and `01` are two classes, always in the same order
    except ValueError:
        return sorted(labels)
