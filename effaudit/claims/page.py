"""The verdicts as one HTML page that needs nothing but itself."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from effaudit import renderers
from effaudit.claims.results import Results
from effaudit.claims.text import HEADS, LEGEND, cells, tally
from effaudit.version import VERSION

_TEMPLATE = "_claims.html.j2"
_KINDS = {"holds": "good", "does not hold": "bad", "cannot be told": "doubt"}  # classes of the style sheet


def render(results: Results) -> str:
    """The page, in the report's own style."""
    styles = Path(renderers.__file__).parent
    settings = Environment(
        loader=FileSystemLoader([Path(__file__).parent, styles]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return settings.get_template(_TEMPLATE).render(
        style=Markup((styles / "_report.css").read_text(encoding="utf-8")),
        version=VERSION,
        tally=tally(results),
        legend=LEGEND,
        heads=HEADS,
        rows=[(finding, cells(finding)) for finding in results.findings],
        kinds=_KINDS,
        tables=results.tables,
        missing=results.missing,
    )
