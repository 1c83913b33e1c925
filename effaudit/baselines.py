"""The accepted figures of the gate: where they lie, how they are read and written, what an update changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from effaudit.errors import EffauditError
from effaudit.files import write_atomically
from effaudit.profile_spec import Spec, validated
from effaudit.record import AuditRecord
from effaudit.runs import read_document, records_from
from effaudit.summary import Summary, summarise

FOLDER = Path("profiles/baselines")
SCHEMA_VERSION = 1

Value = int | float | str | None


class Baseline(Spec):
    """What one profile's models were accepted with."""

    schema_version: int = SCHEMA_VERSION
    profile: str
    models: tuple[Summary, ...]


@dataclass(frozen=True)
class Change:
    """What an update does to one figure, or to what the figures were had from; None where there is none on a side."""

    model: str
    what: str
    unit: str
    before: Value
    after: Value


def baseline_path(profile_name: str, folder: Path = FOLDER) -> Path:
    return folder / f"{profile_name}.json"


def baseline_of(records: Sequence[AuditRecord]) -> Baseline:
    """The baseline that accepts these records of one profile."""
    name = str(records[0].profile.get("name", "audit"))
    return Baseline(profile=name, models=tuple(_kept(summarise(record)) for record in records))


def _kept(summary: Summary) -> Summary:
    """Without what is unavailable."""
    return summary.model_copy(update={"figures": tuple(f for f in summary.figures if f.value is not None)})


def load_baseline(path: str | Path) -> Baseline:
    """A baseline, or records as one: a `{"records": [...]}` document, or a file that is one record.

    Raises EffauditError when the file is missing, is neither, is empty or has another schema.
    """
    path = Path(path)
    data = read_document(path, "baseline", "`effaudit baseline update PROFILE` writes one")
    if not isinstance(data, dict) or "models" not in data:
        return baseline_of(records_from(data, path))
    version = data.get("schema_version")
    if version != SCHEMA_VERSION:
        hint = "upgrade effaudit" if isinstance(version, int) and version > SCHEMA_VERSION else "update the baseline"
        raise EffauditError(f"`{path}` has baseline schema {version}, this effaudit reads {SCHEMA_VERSION}", hint)
    found = validated(Baseline, data, f"`{path}`")
    if not found.models:
        raise EffauditError(f"`{path}` holds no models", "`effaudit baseline update PROFILE` fills it")
    refuse_twice(found.models, f"`{path}`")
    return found


def refuse_twice(models: Sequence[Summary], where: str) -> None:
    """Raises EffauditError where two summaries are of one model: nothing says which of them counts."""
    names = [summary.model for summary in models]
    if twice := [name for name in names if names.count(name) > 1]:
        raise EffauditError(f"{where}: `{twice[0]}` is there twice", "give one run, each model in it once")


def save_baseline(baseline: Baseline, path: Path) -> None:
    """Writes or replaces a baseline.

    Raises EffauditError when it cannot be written.
    """
    write_atomically(path, to_text(baseline))


def to_text(baseline: Baseline) -> str:
    """JSON with a line a figure and keys in the order of their declaration, so that a diff shows what changed."""
    models = ",\n".join(_model_text(summary) for summary in baseline.models)
    head = f'{{\n "schema_version": {baseline.schema_version},\n "profile": {_json(baseline.profile)},\n'
    return f'{head} "models": [\n{models}\n ]\n}}\n'


def _model_text(summary: Summary) -> str:
    data = summary.model_dump(mode="json")
    data["workload"].pop("class_names")
    lines = [f'   "{key}": {_json(value)}' for key, value in data.items() if key != "figures"]
    figures = ",\n".join(
        f"    {_json(figure.model_dump(mode='json', exclude_defaults=True))}" for figure in summary.figures
    )
    return "  {\n" + ",\n".join([*lines, f'   "figures": [\n{figures}\n   ]']) + "\n  }"


def _json(value: object) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False)


def changes(old: Baseline | None, new: Baseline) -> tuple[Change, ...]:
    """Everything that differs, was added or goes away, in the order of `old`, then of `new`."""
    before, after = _values(old), _values(new)
    keys = dict.fromkeys([*before, *after])
    return tuple(Change(*key, before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key))


def _values(baseline: Baseline | None) -> dict[tuple[str, str, str], Value]:
    """By model, name and unit."""
    found: dict[tuple[str, str, str], Value] = {}
    for summary in baseline.models if baseline else ():
        found[summary.model, "weights", ""] = summary.weights
        machine, workload = summary.machine, summary.workload
        found[summary.model, "machine", ""] = f"{machine.device_name}, torch {machine.torch} ({machine.fingerprint})"
        told = f"{workload.dataset}/{workload.split}, {workload.n_examples} in batches of {workload.batch_size}"
        found[summary.model, "workload", ""] = f"{told} ({workload.sha256[:12]})"
        for figure in summary.figures:
            found[summary.model, figure.name, figure.unit] = figure.value
    return found
