"""How a file is written so that nothing half done is ever found under its name."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from effaudit.errors import EffauditError


def write_atomically(path: Path, content: str | bytes | Iterable[str]) -> None:
    """Writes `content`, whole or in pieces, beside `path` and renames it, so that a full disk leaves no half file.

    Raises EffauditError when the file cannot be written.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        pieces = [content] if isinstance(content, str | bytes) else content
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(piece.encode() if isinstance(piece, str) else piece for piece in pieces)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        reason = error.strerror or str(error)
        raise EffauditError(f"cannot write `{path}`: {reason}", "free some space or choose another --out") from error
