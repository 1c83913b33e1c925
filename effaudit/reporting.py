"""Which files a report is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from effaudit.example_table import ExampleTable
from effaudit.files import write_atomically
from effaudit.record import AuditRecord

ReportKind = Literal["html", "markdown", "csv", "figures"]

FIGURES = "figures"  # the folder's name


def write_report(
    records: Sequence[AuditRecord],
    examples: Mapping[str, ExampleTable],
    folder: Path,
    kinds: Sequence[ReportKind],
) -> list[Path]:
    """Writes report.html, report.md, report.csv and figures/ as asked for; returns what was written.

    Raises EffauditError when a file cannot be written.
    """
    from effaudit.renderers import csv, figures, html, markdown  # here, so that `--help` need not wait for them

    written = []
    for kind in kinds:
        if kind == "figures":
            written += figures.write_figures(records, folder / FIGURES, examples)
            continue
        if kind == "html":
            suffix, text = html.SUFFIX, html.render(records, examples)
        else:
            module = {"markdown": markdown, "csv": csv}[kind]
            suffix, text = module.SUFFIX, module.render(records)
        path = folder / f"report{suffix}"
        write_atomically(path, text)
        written.append(path)
    return written
