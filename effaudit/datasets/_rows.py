"""Rows of CSV, TSV and JSONL files, plain or gzipped, one at a time with their line."""

from __future__ import annotations

import csv
import gzip
import json
import sys
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from effaudit.datasets._utf8 import invalid_utf8
from effaudit.errors import EffauditError, unknown_name

SUFFIXES = (".csv", ".tsv", ".jsonl")

# Python 3.10's csv refuses NUL; this private-use character takes its place while a file is parsed.
NUL_STAND_IN = "\ue000"

# Texts are long: csv's own limit of 128 KiB a cell is for other uses.
csv.field_size_limit(min(sys.maxsize, 2**31 - 1))

Column = str | int  # an index (from 0) in files without a header


@dataclass(frozen=True)
class Row:
    """One row; `line` is where it starts in the file, from 1."""

    path: Path
    line: int
    cells: Mapping[Column, object]

    @property
    def place(self) -> str:
        return f"`{self.path}` line {self.line}"

    def text(self, column: Column) -> str:
        """The cell as text, empty where it is null.

        Raises EffauditError when the row has no such column or it holds a list or an object.
        """
        if column not in self.cells:
            raise unknown_column(self.place, column, self.cells)
        value = self.cells[column]
        if value is not None and not isinstance(value, str | int | float):
            raise EffauditError(f"{self.place}: column `{column}` holds a {type(value).__name__}, not a text")
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return "" if value is None else _without_lone_surrogates(str(value))


def _without_lone_surrogates(text: str) -> str:
    """JSON can write halves of surrogate pairs (`"\\ud800"`), which no tokenizer takes."""
    return (
        text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if max(text, default="") >= "\ud800"
        else text
    )


def unknown_column(place: str, column: Column, known: Mapping[Column, object]) -> EffauditError:
    """The error for a column that is not there, listing those that are."""
    error = unknown_name("", str(column), (str(name) for name in known))
    return EffauditError(f"{place}: no column `{column}`", error.hint)


def suffix_of(path: Path) -> str:
    """One of SUFFIXES, a final .gz set aside.

    Raises EffauditError for any other ending.
    """
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    if suffix not in SUFFIXES:
        raise EffauditError(f"cannot tell the format of `{path}`", "use .csv, .tsv or .jsonl, each also with .gz")
    return suffix


def read_rows(path: Path, has_header: bool = True) -> Iterator[Row]:
    """The rows of a file, blank ones left out; `has_header` applies to CSV and TSV.

    CSV is quoted with `"`; TSV is not quoted at all (IANA's text/tab-separated-values). Raises EffauditError with
    file and line when something cannot be read.
    """
    if suffix_of(path) == ".jsonl":
        yield from _json_rows(path)
    else:
        yield from _table_rows(path, has_header)


def _lines(path: Path) -> Iterator[str]:
    """Lines with their ends, a leading byte order mark dropped."""
    number = 0
    try:
        with _open(path) as file:
            for number, line in enumerate(file, start=1):
                text = line.decode("utf-8")
                yield text.removeprefix("\ufeff") if number == 1 else text
    except UnicodeDecodeError as error:
        raise invalid_utf8(path, number, error) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise EffauditError(f"`{path}` is no complete gzip file: {error}", "fetch it again") from error
    except OSError as error:
        raise EffauditError(f"cannot read `{path}`: {error.strerror or error}", "check the path") from error


def _open(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path, "rb")) if path.suffix.lower() == ".gz" else path.open("rb")


def _json_rows(path: Path) -> Iterator[Row]:
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        try:
            cells = json.loads(line, strict=False)  # raw control characters, NUL too, are let through
        except (ValueError, RecursionError) as error:  # too deeply nested
            raise EffauditError(f"`{path}` line {number} is not JSON: {error}", "each line is one object") from None
        if not isinstance(cells, dict):
            raise EffauditError(f"`{path}` line {number} is a {type(cells).__name__}, not an object with columns")
        yield Row(path, number, cells)


def _table_rows(path: Path, has_header: bool) -> Iterator[Row]:
    columns: list[Column] | None = None
    for line, values in _cells(path):
        if columns is None:
            columns = list(values) if has_header else list(range(len(values)))
            if has_header:
                _refuse_repeated(path, values)
                continue
        if len(values) != len(columns):
            raise EffauditError(
                f"`{path}` line {line} has {len(values)} columns, {len(columns)} are expected",
                "quote texts that hold the delimiter, a quote or a line end",
            )
        yield Row(path, line, dict(zip(columns, values, strict=True)))


def _refuse_repeated(path: Path, columns: list[str]) -> None:
    repeated = next((name for name in columns if columns.count(name) > 1), None)
    if repeated is not None:
        raise EffauditError(f"`{path}` has two columns `{repeated}`", "rename one, or set `header: false`")


def _cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The cells of each row that is not blank, with the line where it starts."""
    lines = (line.replace("\0", NUL_STAND_IN) for line in _lines(path))
    if suffix_of(path) == ".tsv":
        reader = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE, strict=True)
    else:
        reader = csv.reader(lines, strict=True)
    line = 1
    try:
        for values in reader:
            if values:
                yield line, [value.replace(NUL_STAND_IN, "\0") for value in values]
            line = reader.line_num + 1
    except csv.Error as error:
        raise EffauditError(f"`{path}` line {line} is not a proper row: {error}", "check its quotes") from error
