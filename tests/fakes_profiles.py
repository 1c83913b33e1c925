"""Profiles so small that training and auditing them takes no time, and records of them on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from effaudit.example_table import ExampleTable, Spill, write_table
from effaudit.record import AuditRecord, save_record
from tests.fakes_records import everyone, examples

QUICK = "quality,flops"  # meters that own no clock


def profile_text(**changes: Any) -> str:
    """A profile on `graded` of which parts are replaced."""
    profile: dict[str, Any] = {
        "data": {
            "dataset": "graded",
            "batch_size": 8,
            "limit": 16,
            "options": {"n_train": 32, "n_calibration": 16, "n_test": 16},
        },
        "size": {"d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 16},
        "models": ["dense", "tsa"],
        "audit": {"meters": ["quality", "flops"], "device": "cpu", "rounds": 2, "max_seconds": 0.01},
        "training": {"steps": 2, "batch_size": 8, "eval_examples": 8},
    }
    return yaml.safe_dump({**profile, **changes}, sort_keys=False)


def write_profile(folder: Path, name: str = "tiny", **changes: Any) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(profile_text(**changes), encoding="utf-8")
    return path


def save_table(table: ExampleTable, path: Path) -> None:
    spill = Spill()
    spill.add(table["index"], {name: table[name] for name in table.names if name != "index"})
    assert write_table([spill], path)


def save_run(folder: Path, records: Sequence[AuditRecord] | None = None) -> list[AuditRecord]:
    """Hand-made records as a run leaves them, with a per-example table beside those that have one."""
    saved = []
    for record in everyone() if records is None else records:
        table = examples().get(record.model.name)
        if table is not None:
            save_table(table, folder / f"{record.model.name}.examples.csv")
            record = record.model_copy(update={"examples": f"{record.model.name}.examples.csv"})
        save_record(record, folder / f"{record.model.name}.json")
        saved.append(record)
    return saved
