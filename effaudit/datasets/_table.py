"""Classification tables: which columns of which files are texts and labels, and which rows are in which split."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from effaudit.datasets._dataset import TextExample
from effaudit.datasets._rows import Column, Row, read_rows
from effaudit.errors import EffauditError, unknown_name
from effaudit.workload import Split

CALIBRATION_SHARE = 0.1  # of the training file, kept from training, where no file is given for it


def as_is(text: str) -> str:
    return text


@dataclass(frozen=True)
class Layout:
    """How a file's rows become examples; `labels` maps what the label column holds to class indices.

    Several text columns are joined by a space. Rows whose label is in `skipped` are left out.
    """

    text: tuple[Column, ...]
    label: Column
    labels: Mapping[str, int]
    text_pair: Column | None = None
    has_header: bool = True
    difficulty: Column | None = None  # numbers, larger is harder
    skipped: frozenset[str] = frozenset()
    clean: Callable[[str], str] = as_is

    def examples(self, path: Path) -> Iterator[TextExample]:
        """The file's examples in order.

        Raises EffauditError naming file and line of a row that cannot be used.
        """
        for row in read_rows(path, self.has_header):
            value = label_of(row, self.label)
            if value not in self.skipped:
                yield self._example(row, value)

    def _example(self, row: Row, value: str) -> TextExample:
        if value not in self.labels:
            wrong = unknown_name("classes", value, self.labels)
            raise EffauditError(f"{row.place}: unknown label `{value}`", wrong.hint)
        text = " ".join(row.text(column) for column in self.text)
        pair = None if self.text_pair is None else self.clean(row.text(self.text_pair))
        difficulty = None if self.difficulty is None else _number(row, self.difficulty)
        return TextExample(self.clean(text), self.labels[value], pair, difficulty)


def _number(row: Row, column: Column) -> float:
    """The number of a cell, NaN where it is empty.

    Raises EffauditError when it is none.
    """
    value = row.text(column).strip()
    try:
        number = float(value) if value else math.nan
    except ValueError:
        number = math.inf
    if math.isinf(number):
        raise EffauditError(f"{row.place}: column `{column}` holds `{value}`, no number", "difficulty is a number")
    return number


def label_of(row: Row, column: Column) -> str:
    """The label as text, numbers without a fraction as integers.

    Raises EffauditError when it is missing.
    """
    value = row.text(column).strip()
    if not value:
        raise EffauditError(f"{row.place}: the label is missing", f"fill column `{column}` or drop the row")
    return value


@dataclass(frozen=True)
class Part:
    """The rows of one file that make a split: all, or those whose seeded draw in [0, 1) falls in [start, stop)."""

    path: Path
    layout: Layout
    start: float = 0.0
    stop: float = 1.0
    seed: int = 0

    def examples(self) -> Iterator[TextExample]:
        is_whole = (self.start, self.stop) == (0.0, 1.0)
        for number, example in enumerate(self.layout.examples(self.path)):
            if is_whole or self.start <= _draw(self.seed, number) < self.stop:
                yield example


def _draw(seed: int, number: int) -> float:
    """A number in [0, 1) that depends on the seed and the row's position alone, so that rows can be streamed."""
    digest = hashlib.blake2b(f"{seed},{number}".encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big") / 2**48


Parts = Mapping[Split, Part]


def examples_of(parts: Parts) -> Callable[[Split], Iterator[TextExample]]:
    """The streams of a table's splits, for TextClassification."""

    def examples(split: Split) -> Iterator[TextExample]:
        if split not in parts:
            raise EffauditError(f"the table has no {split} split", f"name its file with the option `{split}`")
        return parts[split].examples()

    return examples
