"""The accepted records of the gate: where they lie, how they are read and written, what an update changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from effaudit.errors import EffauditError
from effaudit.files import write_atomically
from effaudit.record import AuditRecord, record_from, to_json

FOLDER = Path("profiles/baselines")


@dataclass(frozen=True)
class Change:
    """What an update does to one figure; None where there is none on that side."""

    model: str
    measurement: str
    unit: str
    before: int | float | None
    after: int | float | None


def baseline_path(profile_name: str, folder: Path = FOLDER) -> Path:
    return folder / f"{profile_name}.json"


def load_baseline(path: str | Path) -> tuple[AuditRecord, ...]:
    """The records of a `{"records": [...]}` document, or of a file that is one record.

    Raises EffauditError when the file is missing, is no such document, has no records or a newer schema.
    """
    path = Path(path)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        hint = "`effaudit baseline update PROFILE` writes one"
        raise EffauditError(f"cannot read baseline `{path}`: {error.strerror}", hint) from error
    except ValueError as error:
        raise EffauditError(f"`{path}` is not JSON: {error}") from error
    found = data.get("records", [data]) if isinstance(data, dict) else None
    if not isinstance(found, list):
        raise EffauditError(f"`{path}` is no document of records", 'a baseline is {"records": [...]}')
    if not found:
        raise EffauditError(f"`{path}` holds no records", "`effaudit baseline update PROFILE` fills it")
    return tuple(record_from(item, path) for item in found)


def save_baseline(records: Sequence[AuditRecord], path: Path) -> None:
    """Writes or replaces a baseline.

    Raises EffauditError when it cannot be written.
    """
    write_atomically(path, to_json(records) + "\n")


def changes(old: Sequence[AuditRecord], new: Sequence[AuditRecord]) -> tuple[Change, ...]:
    """Every figure whose value differs, was added or goes away, in the order of `old`, then of `new`."""
    before, after = _figures(old), _figures(new)
    keys = dict.fromkeys([*before, *after])
    return tuple(Change(*key, before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key))


def _figures(records: Sequence[AuditRecord]) -> dict[tuple[str, str, str], int | float | None]:
    return {(r.model.name, m.name, m.unit): m.value for r in records for m in r.measurements}
