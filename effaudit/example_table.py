"""The per-example table: spilled to disk while meters run, joined into one CSV file, read a column at a time.

Every step holds a stretch of the examples at most, so that memory does not grow with the data.
"""

from __future__ import annotations

import csv
import gzip
import tempfile
import weakref
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from effaudit.errors import EffauditError
from effaudit.files import write_atomically
from effaudit.lazy import Lazy

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
else:
    np = Lazy("numpy")  # a third of what `effaudit --help` would take
    Floats = Any

INDEX = "index"
# What effaudit's own meters find, in the order of the file; columns of other meters follow.
COLUMNS = (
    INDEX,
    "label",
    "correct",  # share of asked tokens for language modelling
    "loss",
    "n_asked",  # answers that `correct` and `loss` are means over
    "n_tokens",
    "difficulty",
    "flops_routed",
    "budget",
    "heads",
    "alpha_hard",
    "exit_layer",
)
IN_MEMORY = 1 << 18  # bytes of a spill before it goes to disk: small audits write none
STRETCH = 1 << 13  # rows that are read and joined at a time


class Spill:
    """Rows that one meter finds about one model, in the order in which they come; float64, NaN for what is missing."""

    def __init__(self, folder: Path | None = None) -> None:
        self.columns: tuple[str, ...] = ()
        place = None if folder is None else str(folder)
        self._file = tempfile.SpooledTemporaryFile(IN_MEMORY, dir=place)  # noqa: SIM115
        weakref.finalize(self, self._file.close)

    def add(self, index: ArrayLike, columns: Mapping[str, ArrayLike]) -> None:
        """The rows of a batch; every batch has the same columns."""
        if not self.columns:
            self.columns = (INDEX, *columns)
        assert self.columns == (INDEX, *columns), "a spill has the same columns for every batch"
        parts = [np.asarray(part, dtype=np.float64) for part in (index, *columns.values())]
        self._file.write(np.stack(parts, axis=1).tobytes())

    def stretches(self) -> Iterator[Floats]:
        """The rows (n, columns) as they came, at most STRETCH at a time."""
        width = len(self.columns)
        self._file.seek(0)
        while raw := self._file.read(STRETCH * width * 8):
            yield np.frombuffer(raw, dtype=np.float64).reshape(-1, width)

    def by_index(self) -> Iterator[Floats]:
        """The rows in order of index, which counts from 0: batches of like length mix it up, those ahead wait."""
        waiting: Floats = np.empty((0, len(self.columns)))
        due = 0
        for rows in self.stretches():
            waiting = np.concatenate([waiting, rows])
            waiting = waiting[np.argsort(waiting[:, 0], kind="stable")]
            is_due = waiting[:, 0] == due + np.arange(len(waiting))
            n_due = len(waiting) if is_due.all() else int(is_due.argmin())
            yield waiting[:n_due]
            waiting, due = waiting[n_due:], due + n_due
        yield waiting


class _Reader:
    """A spill in order of index, read as far as asked."""

    def __init__(self, spill: Spill) -> None:
        self.columns = spill.columns[1:]
        self._rest = spill.by_index()
        self._held: Floats = np.empty((0, len(spill.columns)))
        self._fill(1)

    def _fill(self, n: int) -> None:
        while len(self._held) < n and (rows := next(self._rest, None)) is not None:
            self._held = np.concatenate([self._held, rows])

    @property
    def next_index(self) -> float:
        return float(self._held[0, 0]) if len(self._held) else np.inf

    def take_before(self, stop: float) -> Floats:
        self._fill(STRETCH)
        n = int(np.searchsorted(self._held[:, 0], stop))
        taken, self._held = self._held[:n], self._held[n:]
        self._fill(1)
        return taken


def _joined(spills: Sequence[Spill], columns: Sequence[str]) -> Iterator[Floats]:
    """The rows of all spills, joined by index, in order of index, (n, columns)."""
    readers = [_Reader(spill) for spill in spills]
    while (start := min(reader.next_index for reader in readers)) < np.inf:
        parts = [reader.take_before(start + STRETCH) for reader in readers]
        index = np.unique(np.concatenate([part[:, 0] for part in parts]))
        joined = np.full((len(index), len(columns)), np.nan)
        joined[:, 0] = index
        for reader, part in zip(readers, parts, strict=True):
            rows = np.searchsorted(index, part[:, 0])
            for place, name in enumerate(reader.columns, start=1):
                joined[rows, columns.index(name)] = part[:, place]
        yield joined


def write_table(spills: Iterable[Spill], path: Path) -> bool:
    """Joins the spills by index into a CSV file, an empty cell for what is missing; False where there are no rows.

    Raises EffauditError when the file cannot be written.
    """
    filled = [spill for spill in spills if spill.columns]
    if not filled:
        return False
    found = dict.fromkeys(name for spill in filled for name in spill.columns)
    columns = [*(name for name in COLUMNS if name in found), *(name for name in found if name not in COLUMNS)]

    def lines() -> Iterator[str]:
        yield ",".join(columns) + "\n"
        for rows in _joined(filled, columns):
            yield "".join(",".join(map(_cell, row)) + "\n" for row in rows.tolist())

    write_atomically(path, lines())
    return True


def _cell(value: float) -> str:
    if value.is_integer():
        return str(int(value))
    return f"{value:.9g}" if isfinite(value) else ""  # nine digits keep a float32


class ExampleTable:
    """Arrays by column, NaN where one does not apply; a file's columns are read when they are first asked for."""

    def __init__(self, path: Path | None, columns: Mapping[str, ArrayLike] | None = None) -> None:
        self.path = path
        self._read = {name: np.asarray(values, dtype=np.float64) for name, values in (columns or {}).items()}
        self._names = tuple(self._read)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that there are.

        Raises EffauditError when the file is missing or not such a table.
        """
        if not self._names:
            self._names = next(self._rows())[1]
        return self._names

    def __len__(self) -> int:
        return len(self[INDEX])

    def __contains__(self, name: str) -> bool:
        """Whether any row has a value in that column."""
        return self.get(name) is not None

    def __getitem__(self, name: str) -> Floats:
        """One column; all NaN where there is none of that name.

        Raises EffauditError when the file is missing or not such a table.
        """
        if name not in self._read:
            place = self.names.index(name) if name in self.names else None
            self._read[name] = np.full(len(self), np.nan) if place is None else self._column(place)
        return self._read[name]

    def get(self, name: str) -> Floats | None:
        """One column; None where no row has a value."""
        values = self[name]
        return None if np.isnan(values).all() else values

    def mean(self, name: str) -> float | None:
        """The mean over the answers that the examples were asked for; None where no row has a value."""
        weights = self["n_asked"] if "n_asked" in self else np.ones(len(self))
        known = ~np.isnan(self[name]) & (weights > 0)
        return float(np.average(self[name][known], weights=weights[known])) if known.any() else None

    def _column(self, place: int) -> Floats:
        rows = self._rows()
        next(rows)
        return np.fromiter((self._number(line, cells[place]) for line, cells in rows), dtype=np.float64)

    def _number(self, line: int, cell: str) -> float:
        try:
            number = float(cell) if cell else np.nan
        except ValueError:
            number = np.inf
        if cell and not isfinite(number):
            raise self._damaged(f"line {line}: `{cell}` is no number")
        return number

    def _rows(self) -> Iterator[tuple[int, tuple[str, ...]]]:
        """The heading, then the rows, each with its line."""
        assert self.path is not None, "a table in memory has all of its columns"
        try:
            opened = gzip.open if self.path.suffix == ".gz" else open
            with opened(self.path, "rt", encoding="utf-8", newline="") as file:
                width = 0
                for line, cells in enumerate(csv.reader(file), start=1):
                    width = width or len(cells)
                    if line == 1 and INDEX not in cells:
                        raise self._damaged(f"no column `{INDEX}`")
                    if len(cells) != width:
                        raise self._damaged(f"line {line} has {len(cells)} cells, {width} are expected")
                    yield line, tuple(cells)
                if not width:
                    raise self._damaged("it is empty")
        except gzip.BadGzipFile as error:
            raise self._damaged(str(error)) from error
        except OSError as error:
            raise EffauditError(f"cannot read examples `{self.path}`: {error.strerror}") from error
        except (UnicodeDecodeError, csv.Error, EOFError, zlib.error) as error:
            raise self._damaged(str(error)) from error

    def _damaged(self, why: str) -> EffauditError:
        return EffauditError(f"`{self.path}` is not a per-example table: {why}", "audit again, or delete it")
