"""All verdicts and the figures behind them, from whatever is audited so far."""

from __future__ import annotations

from dataclasses import dataclass, replace

from effaudit.claims import budgetformer, carbon, tsa_characters, tsa_tasks
from effaudit.claims.evidence import Evidence
from effaudit.claims.study import Study
from effaudit.claims.verdict import Finding
from effaudit.renderers._cells import Table

TEXTS = {"budgetformer_ag_news": "AG News", "budgetformer_snli": "SNLI"}
SUFFIX = "_published_size"  # of the profiles with the papers' own sizes
LARGE = {f"tsa_characters{SUFFIX}": "TSA, Tiny-Shakespeare", f"budgetformer_ag_news{SUFFIX}": "BudgetFormer, AG News"}


@dataclass(frozen=True)
class Missing:
    """A profile and seed that no figure rests on yet, and why."""

    unit: str
    reason: str


@dataclass(frozen=True)
class Results:
    """What the page and the terminal show."""

    findings: tuple[Finding, ...]
    tables: tuple[Table, ...]
    missing: tuple[Missing, ...]


def results(study: Study) -> Results:
    """From the records that are there."""
    copy, sort, characters = (study.evidence(name) for name in ("tsa_copy", "tsa_sort", "tsa_characters"))
    texts = {title: study.evidence(name) for name, title in TEXTS.items()}
    large = {name: study.evidence(name) for name in LARGE}
    everything = {"copy": copy, "sort": sort, "characters": characters, **texts}
    found = [
        *tsa_tasks.findings(copy, sort),
        *tsa_characters.findings(characters),
        *(finding for title, evidence in texts.items() for finding in budgetformer.findings(evidence, title)),
        *carbon.findings(everything),
        *(finding for name, evidence in large.items() for finding in _at_published_size(name, evidence)),
    ]
    tables = [
        *(tsa_tasks.points(name, evidence) for name, evidence in (("copy", copy), ("sort", sort))),
        tsa_characters.points(characters),
        *(budgetformer.points(evidence, title) for title, evidence in texts.items()),
        *(carbon.points(name, evidence) for name, evidence in everything.items()),
    ]
    missing = [Missing(unit.name, unit.obstacle or "not run yet") for unit in study.units if not unit.is_done]
    return Results(tuple(found), tuple(table for table in tables if _has_figures(table)), tuple(missing))


def _at_published_size(name: str, evidence: Evidence) -> list[Finding]:
    subject = f"{LARGE[name]}, published size"
    if not evidence.by_seed:
        reason = "not run at the published size: no CUDA device was at hand"
        claims = "all of the above"
        return [Finding(subject, claims, "", None, None, 0, "cannot be told", reason)]
    if name.startswith("tsa"):
        return tsa_characters.findings(evidence, subject)
    return [replace(f, subject=f"{f.subject}, published size") for f in budgetformer.findings(evidence, "AG News")]


def _has_figures(table: Table) -> bool:
    return any(cell.order is not None for row in table.rows for cell in row[2:])
