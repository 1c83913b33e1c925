"""The commands that hold an audit against a baseline, and that accept one."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from effaudit.cli_options import Quiet
from effaudit.errors import EffauditError
from effaudit.files import write_atomically
from effaudit.streams import closed_pipe_ignored, note, say, say_json
from effaudit.units import parse_share

if TYPE_CHECKING:
    from effaudit.gate_rows import GateResult, GateRow
    from effaudit.record import AuditRecord

# No `from __future__ import annotations`: typer reads the annotations below as they are.

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"  # names the file whose Markdown GitHub shows on a run's page

Current = Annotated[
    str, typer.Argument(metavar="CURRENT", help="A record, a folder of records, or a profile to audit.")
]


@dataclass(frozen=True)
class _Outputs:
    """Where the verdicts go beside the terminal; `title` is what was gated, `baseline` the file it was held against."""

    is_markdown: bool
    is_json: bool
    junit: Path | None
    is_github: bool

    def check(self) -> None:
        """Raises EffauditError for what cannot be had, before the work whose result it is to hold."""
        if self.is_json and self.is_markdown:
            raise EffauditError("--json and --markdown would both go to stdout", "choose one of them")
        if self.junit is not None:
            from effaudit.cli_results import check_writable

            check_writable(self.junit)

    def publish(self, result: "GateResult", title: str, baseline: str | None) -> None:
        from effaudit.renderers import _build_server, console

        markdown = _build_server.render_markdown(result, title)
        if self.is_json:
            say_json(_build_server.render_json(result))
        elif self.is_markdown:
            say(markdown)
        else:
            _show(console.render_gate(result))
        if self.junit is not None:
            write_atomically(self.junit, _build_server.render_junit(result, title))
        if summary := os.environ.get(SUMMARY_VARIABLE):
            _append(Path(summary), markdown)
        if self.is_github and (annotations := _build_server.render_github(result, baseline)):
            tell = note if self.is_json else say  # GitHub reads both streams
            tell(annotations)


def _show(text: str) -> None:
    """On a terminal by way of its colours; logs get no colour codes, whatever FORCE_COLOR says."""
    if not sys.stdout.isatty():
        say(text.removesuffix("\n"))
        return
    from effaudit.renderers import console

    with closed_pipe_ignored():
        console.show(text)


def _append(path: Path, text: str) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")
    except OSError as error:
        note(f"cannot append to ${SUMMARY_VARIABLE} `{path}`: {error.strerror}")


def gate(
    current: Current,
    baseline: Annotated[
        str | None, typer.Option(metavar="FILE", help="Accepted figures, else profiles/baselines/<profile>.json.")
    ] = None,
    against: Annotated[
        str | None, typer.Option(metavar="REV", help="Time a profile against this git revision, in turns.")
    ] = None,
    max_seconds: Annotated[
        float | None, typer.Option(metavar="S", min=1, help="Time for --against, else the profile's.")
    ] = None,
    tolerance: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="How much worse a measurement may get: 0.05 or 5%. Repeatable."),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Markdown instead of the table.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON document instead of the table.")] = False,
    junit: Annotated[str | None, typer.Option(metavar="FILE", help="Write JUnit XML too.")] = None,
    github: Annotated[bool, typer.Option("--github", help="Print GitHub annotations too.")] = False,
    quiet: Quiet = False,
) -> None:
    """Holds records against a baseline.

    Counted figures must not get worse, quality not beyond its interval, memory not by more than 5 %; time is judged
    where a tolerance names it, here or in the profile's `gate:`. With --against, the median latency of the working tree
    is timed against that of a revision in the same job (and the rest against a baseline only where --baseline names
    one). Where GITHUB_STEP_SUMMARY is set, the Markdown is appended to that file.
    Exit codes: 0 pass, 1 regressed, 2 undecided or not usable.
    """
    outputs = _Outputs(markdown, json, Path(junit) if junit is not None else None, github)
    outputs.check()
    asked = dict(_tolerance(text) for text in tolerance or ())
    if against is None and max_seconds is not None:
        raise EffauditError("--max-seconds acts on --against", "leave it out, or name a revision")
    if against is None:
        result, name, path = _against_baseline(current, baseline, asked, quiet)
        outputs.publish(result, name, path)
    else:
        result, name = _against_revision(current, against, max_seconds, baseline, asked, quiet)
        outputs.publish(result, name, baseline)
    raise typer.Exit(result.exit_code)


def _against_baseline(
    current: str, baseline: str | None, asked: dict[str, float], is_quiet: bool, left_out: tuple[str, ...] = ()
) -> "tuple[GateResult, str, str]":
    """The verdicts on all but the measurements `left_out`, the profile's name, the baseline's file."""
    from effaudit import gating
    from effaudit.baselines import baseline_path, load_baseline
    from effaudit.cli_results import current_records
    from effaudit.summary import summarise

    accepted = load_baseline(baseline) if baseline is not None else None
    records = _saved_records(current)
    name, accepts = _profile_of(records) if records else _profile_named(current)
    path = baseline if baseline is not None else str(baseline_path(name))
    accepted = accepted or load_baseline(path)
    tolerances = {key: share for key, share in {**accepts, **asked}.items() if key not in left_out}
    gating.check_tolerances(tolerances, accepted.models)  # before the audit, not after it
    found = [summarise(record) for record in records or current_records(current, is_quiet)]
    return gating.judge(found, accepted.models, tolerances), name, path


def _against_revision(
    target: str,
    revision: str,
    max_seconds: float | None,
    baseline: str | None,
    asked: dict[str, float],
    is_quiet: bool,
) -> "tuple[GateResult, str]":
    """The verdicts on time against the revision and on all else against the baseline, if any; the profile's name."""
    from effaudit import runs
    from effaudit.against import rows
    from effaudit.against.checkout import revisions
    from effaudit.against.race import race
    from effaudit.gate_rows import GateResult
    from effaudit.profile_spec import load_profile
    from effaudit.progress import tracking

    if runs.is_saved(target):
        raise EffauditError(f"--against times a profile, `{target}` is saved records", "name the profile")
    profile = load_profile(target)
    tolerance = asked.get(rows.TIMED, profile.gate.tolerances.get(rows.TIMED, rows.TIME_TOLERANCE))
    others = {key: share for key, share in asked.items() if key != rows.TIMED}
    if others and baseline is None:
        hint = "name a --baseline for the rest"
        raise EffauditError(f"--tolerance {next(iter(others))}: --against decides {rows.TIMED} alone", hint)
    counted: tuple[GateRow, ...] = ()
    if baseline is not None:
        counted = _against_baseline(target, baseline, others, is_quiet, (rows.TIMED,))[0].rows
    allowed_s = max_seconds if max_seconds is not None else profile.gate.max_seconds
    with revisions(revision, target) as sides, tracking("timing, s", round(allowed_s), is_quiet) as tracker:
        outcome = race(sides.base, sides.current, tolerance, allowed_s, lambda s: tracker.update(round(s)))
    timed = rows.rows_of(outcome, tolerance, revision)
    order = {name: i for i, name in enumerate(dict.fromkeys(row.model for row in (*counted, *timed)))}
    return GateResult(tuple(sorted((*counted, *timed), key=lambda row: order[row.model]))), profile.name


def _saved_records(target: str) -> "list[AuditRecord]":
    from effaudit import runs

    return [saved.record for saved in runs.saved_records([target])] if runs.is_saved(target) else []


def _profile_of(records: "list[AuditRecord]") -> tuple[str, dict[str, float]]:
    """Name and tolerances of the profile that the records were made by."""
    from effaudit.gating import tolerances_of

    return str(records[0].profile.get("name", "audit")), tolerances_of(records)


def _profile_named(target: str) -> tuple[str, dict[str, float]]:
    from effaudit.profile_spec import load_profile

    profile = load_profile(target)
    return profile.name, profile.gate.tolerances


def _tolerance(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name, parse_share(value)
    except ValueError:
        hint = "write `latency.p50=0.05` or `latency.p50=5%`"
        raise EffauditError(
            f"--tolerance: `{text}` is not NAME=VALUE, or its value not a share from 0 on", hint
        ) from None


def baseline_update(
    target: Current,
    out: Annotated[str | None, typer.Option(metavar="FILE", help="Else profiles/baselines/<profile>.json.")] = None,
    quiet: Quiet = False,
) -> None:
    """Accepts records as the baseline of the gate.

    Shows what that changes. A baseline holds each figure with its spread, not the raw samples.
    """
    from effaudit import baselines, runs
    from effaudit.cli_results import check_writable, current_records
    from effaudit.profile_spec import load_profile
    from effaudit.renderers import console

    path = Path(out) if out is not None else None
    if path is None and not runs.is_saved(target):
        path = baselines.baseline_path(load_profile(target).name)
    if path is not None:
        check_writable(path)
    found = baselines.baseline_of(current_records(target, quiet))
    path = path or baselines.baseline_path(found.profile)
    before = baselines.load_baseline(path) if path.exists() else None
    _show(console.render_changes(baselines.changes(before, found)))
    for summary in found.models:
        if any(figure.is_unstable for figure in summary.figures):
            note(f"caution: `{summary.model}` was timed on a busy machine: a gate on its time cannot decide", quiet)
    baselines.save_baseline(found, path)
    say(f"wrote {path}")
