"""Where a preset's files lie in the user's folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from effaudit.errors import EffauditError
from effaudit.profile_spec import DataSpec

Role = TypeVar("Role", bound=str)


def find_files(spec: DataSpec, editions: Sequence[Mapping[Role, Sequence[str]]]) -> tuple[int, dict[Role, Path]]:
    """Which of the `editions` is complete in `spec.path` (or its subfolder named after the preset), and its files.

    An edition maps what a file is for to its accepted names (patterns, best first). Raises EffauditError that
    says which files are expected where.
    """
    expected = "; or ".join(_described(edition) for edition in editions)
    if spec.path is None:
        raise EffauditError(
            f"`{spec.kind}` needs the folder where its files lie: {expected}", "give it with `--data FOLDER`"
        )
    root = Path(spec.path).expanduser()
    for folder in (root, root / spec.kind, root / spec.kind.replace("_", "-")):
        for number, edition in enumerate(editions):
            found = {role: _first_match(folder, names) for role, names in edition.items()}
            complete = {role: path for role, path in found.items() if path is not None}
            if len(complete) == len(found):
                return number, complete
    state = "lacks files" if root.is_dir() else "is no folder"
    raise EffauditError(f"`{root}` {state} for `{spec.kind}`: {expected}", "give the right folder with `--data FOLDER`")


def _first_match(folder: Path, names: Sequence[str]) -> Path | None:
    matches = (path for name in names for path in sorted(folder.glob(name)) if path.is_file())
    return next(matches, None)


def _described(edition: Mapping[Role, Sequence[str]]) -> str:
    return ", ".join(" or ".join(f"`{name}`" for name in names) for names in edition.values())
