"""Which figures and tables an HTML report has, in which order, under which headings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from effaudit.record import AuditRecord
from effaudit.renderers import _control_words as control_words
from effaudit.renderers._cells import Table
from effaudit.renderers._shares import Examples
from effaudit.renderers._topics import (
    controls,
    denominators,
    difficulty,
    energy,
    ladder,
    latency,
    layers,
    matches,
    memory,
    modules,
    quality,
    sweep,
    token_classes,
)
from effaudit.renderers._topics._drawing import Drawing


@dataclass(frozen=True)
class Section:
    """A heading with its anchor, what to know before reading, sentences, figures with their data, other tables."""

    anchor: str
    title: str
    intro: str
    drawings: tuple[Drawing, ...] = ()
    sentences: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.drawings or self.sentences or any(table.rows for table in self.tables))


def sections(records: Sequence[AuditRecord], examples: Examples) -> tuple[Section, ...]:
    """Those that the records can fill."""
    found = (section(records, examples) for section in _SECTIONS)
    return tuple(section for section in found if not section.is_empty)


def _ladder(records: Sequence[AuditRecord], examples: Examples) -> Section:
    intro = (
        "Each step is a change against the dense model: negative is a saving. Where a step saves less than the one "
        "before it, something leaks. How much a cut in FLOPs is depends on what it is a share of."
    )
    told = ladder.reference(records)
    drawn = _drawn(ladder.drawing(records), denominators.drawing(records))
    tables = (told,) if told.rows else ()
    return Section("ladder", "From claim to clock", intro, drawn, ladder.sources(records), tables)


def _quality(records: Sequence[AuditRecord], examples: Examples) -> Section:
    intro = "Filled points, joined by the dotted line, are beaten by no other model in both quality and cost."
    return Section("quality", "Quality against cost", intro, tuple(quality.drawings(records)))


def _difficulty(records: Sequence[AuditRecord], examples: Examples) -> Section:
    intro = "A model that adapts runs more of itself on harder examples. The first block always runs and counts too."
    told = difficulty.following(records, examples)
    drawn = _drawn(difficulty.drawing(records, examples))
    return Section("difficulty", "By difficulty", intro, drawn, tables=(told,) if told.rows else ())


def _routing(records: Sequence[AuditRecord], examples: Examples) -> Section:
    intro = "What the hard rule leaves out, whether or not the execution can make use of it."
    drawn = (*_drawn(layers.skip_drawing(records), layers.exit_drawing(records)), *token_classes.drawings(records))
    classes = token_classes.table(records)
    return Section("layers", "Where models skip", intro, drawn, tables=(classes,) if classes.rows else ())


def _controls(records: Sequence[AuditRecord], examples: Examples) -> Section:
    intro = (
        "The same weights under another routing and, where the profile names one, a model trained under fixed random "
        "routing. Where that does as well at equal FLOPs, nothing was gained by learning when to skip."
    )
    drawn = _drawn(controls.drawing(records))
    rows = controls.table(records)
    tables = (rows,) if rows.rows and not drawn else ()
    return Section("controls", "Against controls", intro, drawn, control_words.lines(records), tables)


def _matches(records: Sequence[AuditRecord], examples: Examples) -> Section:
    intro = "Knobs were turned on the calibration split until one model met another; what is shown is another split."
    rows = matches.table(records)
    return Section("matches", "Matched", intro, (), matches.lines(records), (rows,) if rows.rows else ())


def _costs(records: Sequence[AuditRecord], examples: Examples) -> Section:
    intro = "Figures of this machine; ratios travel better than seconds and joules."
    drawn = _drawn(latency.drawing(records), memory.drawing(records), energy.drawing(records))
    return Section("costs", "Time, memory, energy", intro, drawn)


def _modules(records: Sequence[AuditRecord], examples: Examples) -> Section:
    intro = "Executed FLOPs of one pass over the workload, counted operation by operation."
    return Section("modules", "FLOPs by module", intro, _drawn(modules.drawing(records)))


def _sweep(records: Sequence[AuditRecord], examples: Examples) -> Section:
    intro = (
        "One model run in several ways; a star marks the way that does most, or that is cheapest where none is timed."
    )
    return Section("sweep", "Ways to run", intro, (), sweep.lines(records), sweep.tables(records))


_SECTIONS: tuple[Callable[[Sequence[AuditRecord], Examples], Section], ...] = (
    _sweep,
    _ladder,
    _quality,
    _matches,
    _controls,
    _difficulty,
    _routing,
    _costs,
    _modules,
)


def _drawn(*drawings: Drawing | None) -> tuple[Drawing, ...]:
    return tuple(drawing for drawing in drawings if drawing is not None)
