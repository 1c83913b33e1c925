"""How a figure is described, and how it becomes SVG or PNG."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import escape

from effaudit.renderers._cells import Table
from effaudit.renderers._layout import printable
from effaudit.renderers._topics import _style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN, PNG_DPI = 6.0, 160
_DATED = ("Date", "Creator", "Format", "Type")  # metadata that would differ from one day or machine to another


@dataclass(frozen=True)
class Drawing:
    """One figure: its file name, its title, what it shows in words, the table of its data, and how it is drawn."""

    name: str
    title: str
    alt: str
    table: Table
    plot: Callable[[Sequence[Axes]], None]
    n_axes: int = 1  # below each other
    height_in: float = 3.4


def svg(drawing: Drawing) -> str:
    """An SVG document on white, without a date and with ids that depend on the content alone."""
    return _svg(drawing).replace(_style.INK, _style.LIGHT_INK).replace(_style.PAPER, _style.LIGHT_PAPER)


def inline(drawing: Drawing) -> str:
    """The `<svg>` element to stand inside an HTML page: its ids its own, its colours the page's."""
    text = _svg(drawing)
    element = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    element = re.sub(r'\s+xmlns(:\w+)?="[^"]*"', "", element)
    element = re.sub(r'(\bid=")', rf"\1{drawing.name}-", element)
    element = re.sub(r'(url\(#|xlink:href="#)', rf"\1{drawing.name}-", element)
    element = element.replace(_style.PAPER, "var(--page)").replace(_style.INK, "currentColor")
    for colour in _style.DARK_OF:
        element = element.replace(colour, f"var({variable(colour)})")
    label = escape(printable(drawing.alt))
    return element.replace("<svg", f'<svg role="img" focusable="false" aria-label="{label}"', 1)


def png(drawing: Drawing) -> bytes:
    """A PNG on white."""
    image = io.BytesIO()
    with _figure(drawing) as figure:
        figure.savefig(image, format="png", dpi=PNG_DPI, metadata={"Software": None})
    return image.getvalue()


def variable(colour: str) -> str:
    """The CSS variable that stands for a colour of the palette."""
    return f"--c{colour.removeprefix('#')}"


def _svg(drawing: Drawing) -> str:
    text = io.StringIO()
    with _figure(drawing) as figure:
        figure.savefig(text, format="svg", metadata=dict.fromkeys(_DATED))
    return text.getvalue()


@contextmanager
def _figure(drawing: Drawing) -> Iterator[Figure]:
    import matplotlib
    from matplotlib.figure import Figure

    settings: dict[Any, Any] = {**_style.RC, "svg.hashsalt": drawing.name}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # Glyphs are the reader's: the SVG holds text, so that DejaVu lacking one matters only to spacing.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(figsize=(WIDTH_IN, drawing.height_in), layout="constrained")
        drawing.plot(list(figure.subplots(drawing.n_axes, 1, squeeze=False)[:, 0]))
        yield figure
