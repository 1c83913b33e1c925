"""The report as one HTML page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from effaudit import units
from effaudit.difficulty import DifficultyRow, by_difficulty
from effaudit.errors import EffauditError
from effaudit.example_table import ExampleTable
from effaudit.ladder import Ladder, ladder
from effaudit.profile_spec import AuditProfile, load_profile, validated
from effaudit.record import AuditRecord
from effaudit.renderers._in_depth import methods
from effaudit.renderers._layout import printable
from effaudit.renderers._table import LEGEND, MARKS, headings, rows
from effaudit.renderers._words import cautions, missing, sentence
from effaudit.renderers.figures import draw

SUFFIX = ".html"

_DIFFICULTY_COLUMNS: Mapping[str, str] = {
    "accuracy": "accuracy",
    "loss": "loss",
    "head_fraction": "k/H",
    "alpha_hard": "alpha (hard)",
    "exit_layer": "exit layer",
    "flops_routed": "FLOPs an example",
}


@dataclass(frozen=True)
class Table:
    """A captioned table of text; the first column is the row's heading."""

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Reproduction:
    """The command that repeats an audit, and the file it needs where its profile is not built in."""

    command: str
    file_name: str
    text: Markup


def render(records: Sequence[AuditRecord], examples: Mapping[str, ExampleTable] | None = None) -> str:
    """The page; `examples` are the per-example tables by model name."""
    loader = FileSystemLoader(Path(__file__).parent)
    settings = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_clean
    )
    ladders = [ladder(record, records) for record in records]
    return settings.get_template("_report.html.j2").render(
        title=", ".join(dict.fromkeys(_title(record) for record in records)) or "no records",
        sentences=[sentence(record, records) for record in records],
        heads=headings(records),
        rows=rows(records),
        legend=LEGEND,
        steps=_steps_table(ladders),
        drawings=[(drawing, Markup(drawing.inline)) for drawing in draw(records, examples)],
        layers=[table for record in records if (table := _layers_table(record)).rows],
        difficulty=_difficulty_tables(records, examples or {}),
        absolute=_absolute_table(records),
        environments=_environments(records),
        methods=methods([m for record in records for m in record.measurements]),
        cautions=cautions(records),
        missing=missing(records),
        reproductions=list(dict.fromkeys(_reproduction(record) for record in records)),
        versions=", ".join(dict.fromkeys(f"effaudit {r.effaudit_version}" for r in records)),
    )


def _clean(value: object) -> object:
    """What the template prints: no control characters from names or texts, markup of our own as it is."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _title(record: AuditRecord) -> str:
    return f"{record.profile.get('name', 'audit')} on {record.workload.dataset}"


def _steps_table(ladders: Sequence[Ladder]) -> Table:
    """Every rung with its interval, what was lost since the rung before, and its origin or the reason it is missing."""
    lines: list[tuple[str, ...]] = []
    for steps in ladders:
        if steps.is_reference:
            continue
        lost = {leak.end: units.points(leak.lost) for leak in steps.leaks}
        for rung in steps.rungs:
            change = "–" if rung.change is None else f"{units.signed_percent(rung.change)} {MARKS[rung.source]}"
            span = units.interval(*rung.interval) if rung.interval else ""
            lines.append((steps.model, rung.step, change, span, lost.get(rung.step, ""), rung.reason))
        if steps.routable.change is not None:
            shown = f"{units.signed_percent(steps.routable.change)} {MARKS[steps.routable.source]}"
            lines.append((steps.model, "FLOPs at best", shown, "", "", steps.routable.reason))
    heads = ("model", "step", "against dense", "95 % interval (%)", "lost since the step before", "how, or why not")
    return Table("The ladder in figures", heads, tuple(lines))


def _layers_table(record: AuditRecord) -> Table:
    columns = ("head_fraction", "budget", "alpha_soft", "alpha_hard", "exit_share")
    used = [c for c in columns if any(getattr(row, c) is not None for row in record.layers)]
    lines = [(str(row.layer), *(_optional(getattr(row, c)) for c in used)) for row in record.layers]
    return Table(record.model.name, ("layer", *used), tuple(lines) if used else ())


def _difficulty_tables(records: Sequence[AuditRecord], examples: Mapping[str, ExampleTable]) -> list[Table]:
    found = []
    for record in records:
        levels = by_difficulty(examples.get(record.model.name))
        used = [c for c in _DIFFICULTY_COLUMNS if any(getattr(level, c) is not None for level in levels)]
        lines = tuple((level.level, str(level.n_examples), *_figures(level, used)) for level in levels)
        if lines:
            heads = ("difficulty", "examples", *(_DIFFICULTY_COLUMNS[c] for c in used))
            found.append(Table(record.model.name, heads, lines))
    return found


def _figures(level: DifficultyRow, columns: Sequence[str]) -> list[str]:
    return [_optional(getattr(level, column), "FLOP" if column == "flops_routed" else "1") for column in columns]


def _absolute_table(records: Sequence[AuditRecord]) -> Table:
    """Every measurement of every model in absolute figures."""
    names = dict.fromkeys(m.name for record in records for m in record.measurements)
    lines = []
    for name in names:
        found = [record.get(name) for record in records]
        cells = [f"{_optional(m.value, m.unit)} {MARKS[m.source]}" if m and m.value is not None else "–" for m in found]
        lines.append((name, *cells))
    heads = ("measurement", *(record.model.name for record in records))
    return Table("All measurements", heads, tuple(lines))


def _environments(records: Sequence[AuditRecord]) -> list[Table]:
    """The machines and workloads, each once; the load, which changes from model to model, is left to the records."""
    found: dict[Table, None] = {}
    for record in records:
        for caption, spec in (("Environment", record.environment), ("Workload", record.workload)):
            fields = [(key, _listed(value)) for key, value in spec.model_dump(exclude={"load_average"}).items()]
            found[Table(caption, ("what", "which"), tuple(fields))] = None
    return list(found)


def _reproduction(record: AuditRecord) -> Reproduction:
    """By the profile's name where it is built in and unchanged, else by the resolved profile of the record."""
    name = printable(str(record.profile.get("name", "audit")))
    try:
        if load_profile(name) == validated(AuditProfile, record.profile, name):
            return Reproduction(f"effaudit compare {name}", "", Markup())
    except EffauditError:
        pass  # not built in, or of another version: the record's own profile is what was run
    profile = record.model_dump(mode="json")["profile"]
    text = yaml.safe_dump(profile, sort_keys=False, allow_unicode=True, width=100)
    return Reproduction(f"effaudit compare {name}.yaml", f"{name}.yaml", escape(text))


def _optional(value: int | float | None, unit: str = "1") -> str:
    return "–" if value is None else units.quantity(value, unit)


def _listed(value: object) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value))
    return "–" if value is None else str(value)
