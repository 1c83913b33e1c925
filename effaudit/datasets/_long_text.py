"""A long text in memory or in a file, read in pieces from any place."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from effaudit.datasets._utf8 import first_invalid_utf8
from effaudit.errors import EffauditError

PIECE = 1 << 20  # bytes read at a time


@dataclass(frozen=True)
class Piece:
    """A stretch of text; `mark` is where a stream can start again to begin with it."""

    start: int  # in characters
    mark: int
    text: str


class Text(Protocol):
    """A long text that can be read again from any mark it has given out."""

    @property
    def name(self) -> str: ...

    def pieces(self, start: int = 0, mark: int = 0) -> Iterator[Piece]: ...


@dataclass(frozen=True)
class MemoryText:
    """A text that is in memory anyway; marks count characters."""

    name: str
    text: str

    def pieces(self, start: int = 0, mark: int = 0) -> Iterator[Piece]:
        for at in range(mark, len(self.text), PIECE):
            yield Piece(at, at, self.text[at : at + PIECE])


@dataclass(frozen=True)
class FileText:
    """A UTF-8 file, line ends kept as they are, a byte order mark dropped; marks count bytes.

    `may_be_cut` tolerates a file that ends inside a character, as an excerpt by bytes does.
    """

    path: Path
    may_be_cut: bool = False

    @property
    def name(self) -> str:
        return str(self.path)

    def pieces(self, start: int = 0, mark: int = 0) -> Iterator[Piece]:
        """The text from byte `mark`, which is character `start`.

        Raises EffauditError when the file cannot be read or is not UTF-8.
        """
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            with self.path.open("rb") as file:
                file.seek(mark)
                if mark == 0 and file.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
                    file.seek(0)
                while True:
                    raw = file.read(PIECE)
                    text = decoder.decode(raw, final=not raw and not self.may_be_cut)
                    if text:
                        yield Piece(start, mark, text)
                    if not raw:
                        return
                    start += len(text)
                    mark = file.tell() - len(decoder.getstate()[0])
        except UnicodeDecodeError:
            raise first_invalid_utf8(self.path) from None
        except OSError as error:
            raise EffauditError(
                f"cannot read `{self.path}`: {error.strerror or error}", "give a UTF-8 text file"
            ) from error
