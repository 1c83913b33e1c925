"""The figures of a report, as SVG and PNG files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from effaudit.files import write_atomically
from effaudit.record import AuditRecord
from effaudit.renderers._shares import Examples
from effaudit.renderers._topics import (
    controls,
    denominators,
    difficulty,
    energy,
    ladder,
    latency,
    layers,
    memory,
    modules,
    quality,
    token_classes,
)
from effaudit.renderers._topics._drawing import Drawing, png, svg

SUFFIX = ".svg"


def render(records: Sequence[AuditRecord]) -> str:
    """The ladder of all models as one SVG document."""
    return svg(ladder.drawing(records))


def drawings(records: Sequence[AuditRecord], examples: Examples | None = None) -> list[Drawing]:
    """Every figure that the records can fill; the same bytes for the same records."""
    found = [
        ladder.drawing(records),
        denominators.drawing(records),
        *quality.drawings(records),
        difficulty.drawing(records, examples or {}),
        layers.skip_drawing(records),
        layers.exit_drawing(records),
        *token_classes.drawings(records),
        controls.drawing(records),
        latency.drawing(records),
        memory.drawing(records),
        energy.drawing(records),
        modules.drawing(records),
    ]
    return [drawing for drawing in found if drawing is not None]


def write_figures(records: Sequence[AuditRecord], folder: Path, examples: Examples | None = None) -> list[Path]:
    """Writes every figure that the records can fill as `<name>.svg` and `<name>.png`; says where.

    Raises EffauditError when a file cannot be written.
    """
    paths = []
    for drawing in drawings(records, examples):
        for suffix, content in ((SUFFIX, svg(drawing)), (".png", png(drawing))):
            path = folder / f"{drawing.name}{suffix}"
            write_atomically(path, content)
            paths.append(path)
    return paths
