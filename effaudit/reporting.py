"""Which files a report is made of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from effaudit import plugins
from effaudit.files import write_atomically
from effaudit.record import AuditRecord
from effaudit.renderers._shares import Examples

FIGURES = "figures"  # a renderer whose result is a folder of that name
OWN = ("html", "markdown", "csv", "console")  # their files are called report; those of other packages after them


def write_report(records: Sequence[AuditRecord], examples: Examples, folder: Path, kinds: Sequence[str]) -> list[Path]:
    """Writes a file, or for figures a folder, for each renderer that is named; returns what was written.

    Raises EffauditError when there is no such renderer, or a file cannot be written.
    """
    renderers = {kind: plugins.load("renderers", kind) for kind in kinds}
    written: list[Path] = []
    for kind, renderer in renderers.items():
        if kind == FIGURES:
            written += renderer.write_figures(records, folder / FIGURES, examples)
            continue
        path = folder / f"{'report' if kind in OWN else kind}{renderer.SUFFIX}"
        write_atomically(path, renderer.render(records, examples))
        written.append(path)
    return written
