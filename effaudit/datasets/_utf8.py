"""Where a file that should be UTF-8 is not."""

from __future__ import annotations

from pathlib import Path

from effaudit.errors import EffauditError


def invalid_utf8(path: Path, line: int, error: UnicodeDecodeError) -> EffauditError:
    """The error for the first bad byte of a line; line and column count from 1, the column in characters."""
    column = len(error.object[: error.start].decode("utf-8")) + 1
    return EffauditError(
        f"`{path}` is not UTF-8: byte 0x{error.object[error.start]:02x} at line {line}, column {column}",
        "convert it, for example with `iconv -t UTF-8`",
    )


def first_invalid_utf8(path: Path) -> EffauditError:
    """The same for a file that is known to have a bad byte somewhere."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                return invalid_utf8(path, number, error)
    return EffauditError(f"`{path}` changed while it was read", "try again")
