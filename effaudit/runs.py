"""Where the records of runs lie, and how they are found again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import count
from pathlib import Path

from effaudit.errors import EffauditError
from effaudit.example_table import ExampleTable
from effaudit.profile_spec import builtin_profiles
from effaudit.record import AuditRecord, record_from

RUNS = Path("reports/runs")  # below the current folder


@dataclass(frozen=True)
class Saved:
    """A record and the folder that it lies in."""

    record: AuditRecord
    folder: Path


def new_run_folder(name: str) -> Path:
    """A new, empty folder for one run, named by time.

    Raises EffauditError when it cannot be made.
    """
    time = f"{datetime.now(timezone.utc):%Y%m%dT%H%M%S}"
    for number in count(1):
        folder = RUNS / (f"{time}-{name}" if number == 1 else f"{time}-{name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError as error:
            if not folder.is_dir():
                raise _unwritable(folder, error) from error
        except OSError as error:
            raise _unwritable(folder, error) from error
        else:
            return folder
    raise AssertionError("count() ends never")


def _unwritable(folder: Path, error: OSError) -> EffauditError:
    return EffauditError(f"cannot write to `{folder}`: {error.strerror}", "choose another --out")


def refuse_overwriting(folder: Path, names: Iterable[str]) -> None:
    """Raises EffauditError when `folder` has a record of one of these models already, before any work is done."""
    for name in names:
        if (folder / f"{name}.json").exists():
            raise EffauditError(
                f"`{folder}` has a record of `{name}` already", "records are never overwritten: choose another --out"
            )


def is_saved(target: str) -> bool:
    """Whether a target of the command line means saved records: a .json file, or a folder."""
    return target not in builtin_profiles() and (target.endswith(".json") or Path(target).is_dir())


def read_document(path: Path, kind: str, hint: str = "") -> object:
    """What a JSON file holds; `kind` names in errors what it was to be.

    Raises EffauditError when the file is missing or not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise EffauditError(f"cannot read {kind} `{path}`: {error.strerror}", hint) from error
    except ValueError as error:
        raise EffauditError(f"`{path}` is not JSON: {error}", hint) from error


def load_records(path: Path) -> tuple[AuditRecord, ...]:
    """The records of a `{"records": [...]}` document, or of a file that is one record.

    Raises EffauditError when the file is missing, is no such document, has no records or another schema.
    """
    return records_from(read_document(path, "record"), path)


def records_from(data: object, path: Path) -> tuple[AuditRecord, ...]:
    """The records of a document that was read from `path`.

    Raises EffauditError as `load_records`.
    """
    if isinstance(data, dict) and "models" in data:
        raise EffauditError(
            f"`{path}` is a baseline of the gate, not a record", "give it to `effaudit gate --baseline`"
        )
    found = data.get("records", [data]) if isinstance(data, dict) else None
    if not isinstance(found, list):
        raise EffauditError(f"`{path}` is no document of records", 'it is to be {"records": [...]}, or one record')
    if not found:
        raise EffauditError(f"`{path}` holds no records", "`effaudit compare --json FILE` writes some")
    return tuple(record_from(item, path) for item in found)


def saved_records(targets: Sequence[str | Path]) -> list[Saved]:
    """The records of files (one record, or a document of many) and of folders, in the order of their profile.

    Raises EffauditError when a target is missing, damaged or has none.
    """
    found = []
    for target in map(Path, targets):
        if target.is_dir():
            found += _records_in(target)
        elif target.is_file():
            found += [Saved(record, target.parent) for record in load_records(target)]
        else:
            raise EffauditError(f"no record `{target}`", "`effaudit profile` and `effaudit compare` write records")
    return found


def _records_in(folder: Path) -> list[Saved]:
    records = [record for path in sorted(folder.glob("*.json")) if _is_record(path) for record in load_records(path)]
    if not records:
        raise EffauditError(f"no records in `{folder}`", "give a run's folder, or the record's file")
    return [Saved(record, folder) for record in sorted(records, key=_place_in_profile)]


def _is_record(path: Path) -> bool:
    """Whether a file says that it is one record; what is not even JSON counts, so that reading it tells."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return True
    return isinstance(data, dict) and "schema_version" in data and "models" not in data


def _place_in_profile(record: AuditRecord) -> int:
    models = record.profile.get("models")
    names = [model.get("name") for model in models if isinstance(model, dict)] if isinstance(models, list) else []
    return names.index(record.model.name) if record.model.name in names else len(names)


def newest_run() -> Path:
    """The run whose records were written last.

    Raises EffauditError when there is none.
    """
    times = {path.parent: path.stat().st_mtime_ns for path in sorted(RUNS.glob("*/*.json"))}
    if not times:
        raise EffauditError(
            f"no run under `{RUNS}`", "make one with `effaudit compare`, or name a record or its folder"
        )
    return max(times, key=times.__getitem__)


def one_task(found: Sequence[Saved]) -> Sequence[Saved]:
    """The same records, each once.

    Raises EffauditError when they are of different tasks: no quality stands for both.
    """
    tasks = {saved.record.workload.task: saved.record.workload.dataset for saved in found}
    if len(tasks) > 1:
        told = " and ".join(f"{task} ({dataset})" for task, dataset in tasks.items())
        raise EffauditError(f"these records are of different tasks: {told}", "show those of one task at a time")
    once: list[Saved] = []
    for saved in found:
        if saved not in once:
            once.append(saved)
    return once


def told_apart(found: Sequence[Saved]) -> list[Saved]:
    """The same records, models of one name named after their folder too, and numbered within it."""
    counts = Counter(saved.record.model.name for saved in found)
    taken: Counter[str] = Counter()

    def named(saved: Saved) -> Saved:
        model = saved.record.model
        if counts[model.name] == 1:
            return saved
        name = f"{model.name} ({saved.folder.resolve().name})"
        taken[name] += 1
        name = name if taken[name] == 1 else f"{name} {taken[name]}"
        model = model.model_copy(update={"name": name})
        return Saved(saved.record.model_copy(update={"model": model}), saved.folder)

    return [named(saved) for saved in found]


def examples_of(found: Sequence[Saved]) -> dict[str, ExampleTable]:
    """By model name, the per-example tables that lie beside the records; one that was left behind is left out."""
    tables = ((saved.record.model.name, saved.record.table) for saved in found)
    return {name: table for name, table in tables if table is not None}
