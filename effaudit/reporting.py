"""Which files a report is made of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from effaudit.files import write_atomically
from effaudit.record import AuditRecord
from effaudit.renderers._shares import Examples

ReportKind = Literal["html", "markdown", "csv", "figures"]

FIGURES = "figures"  # the folder's name


def write_report(
    records: Sequence[AuditRecord], examples: Examples, folder: Path, kinds: Sequence[ReportKind]
) -> list[Path]:
    """Writes report.html, report.md, report.csv and figures/ as asked for; returns what was written.

    Raises EffauditError when a file cannot be written.
    """
    from effaudit.renderers import csv, figures, html, markdown  # here, so that `--help` need not wait for them

    modules = {"html": html, "markdown": markdown, "csv": csv}
    written = []
    for kind in kinds:
        if kind == "figures":
            written += figures.write_figures(records, folder / FIGURES, examples)
            continue
        path = folder / f"report{modules[kind].SUFFIX}"
        write_atomically(path, modules[kind].render(records, examples))
        written.append(path)
    return written
