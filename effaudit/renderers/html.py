"""The report as one HTML page that needs nothing but itself."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from effaudit.record import AuditRecord
from effaudit.renderers._cells import Table, text
from effaudit.renderers._in_depth import methods
from effaudit.renderers._layout import printable
from effaudit.renderers._reproduction import reproductions
from effaudit.renderers._sections import sections
from effaudit.renderers._sentence import sentence
from effaudit.renderers._shares import Examples
from effaudit.renderers._table import LEGENDS, headings, rows
from effaudit.renderers._tags import tags
from effaudit.renderers._text_samples import SHADES, shaded
from effaudit.renderers._topics import _style, measurements
from effaudit.renderers._topics._drawing import inline, variable
from effaudit.renderers._words import cautions, missing, obstacles

SUFFIX = ".html"
_HERE = Path(__file__).parent
_AS_IT_IS = ("\n", "\t")  # control characters that texts may keep


def render(records: Sequence[AuditRecord], examples: Examples | None = None) -> str:
    """The page; `examples` are the per-example tables by model name."""
    settings = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_clean,
    )
    script = (_HERE / "_report.js").read_text(encoding="utf-8")
    return settings.get_template("_report.html.j2").render(
        title=", ".join(dict.fromkeys(_title(record) for record in records)) or "no records",
        style=Markup((_HERE / "_report.css").read_text(encoding="utf-8")),
        palettes=_palettes(),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        sentences=[(sentence(record, records), tags(record, records)) for record in records],
        obstacles=obstacles(records),
        heads=headings(records),
        rows=rows(records),
        legends=LEGENDS,
        sections=sections(records, examples or {}),
        inline=lambda drawing: Markup(inline(drawing)),
        shaded=shaded(records),
        shades=range(SHADES),
        absolute=measurements.table(records),
        environments=_environments(records),
        methods=methods([m for record in records for m in record.measurements]),
        cautions=cautions(records),
        missing=missing(records),
        reproductions=reproductions(records),
        versions=", ".join(dict.fromkeys(f"effaudit {r.effaudit_version}" for r in records)),
    )


def _clean(value: object) -> object:
    """What the template prints: no control characters from names or texts, markup of our own as it is."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return "".join(c if c in _AS_IT_IS else printable(c) for c in value)
    return value


def _palettes() -> tuple[Markup, Markup]:
    """The CSS variables of the figures' colours, for light and for dark pages."""
    pairs = _style.DARK_OF.items()
    light = "; ".join(f"{variable(colour)}: {colour}" for colour, _ in pairs)
    dark = "; ".join(f"{variable(colour)}: {other}" for colour, other in pairs)
    return Markup(light), Markup(dark)


def _title(record: AuditRecord) -> str:
    return f"{record.profile.get('name', 'audit')} on {record.workload.dataset}"


def _environments(records: Sequence[AuditRecord]) -> list[Table]:
    """The machines and workloads, each once; the load, which changes from model to model, is left to the records."""
    found: dict[Table, None] = {}
    for record in records:
        for caption, spec in (("Environment", record.environment), ("Workload", record.workload)):
            fields = spec.model_dump(exclude={"load_average"}).items()
            lines = tuple((text(key), text(_listed(value))) for key, value in fields)
            found[Table(caption, ("what", "which"), lines)] = None
    return list(found)


def _listed(value: object) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value))
    return "–" if value is None else str(value)
