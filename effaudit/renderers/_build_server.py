"""What the gate says where a build server reads it: Markdown, JUnit XML, GitHub annotations, JSON."""

from __future__ import annotations

import dataclasses
import json
from itertools import groupby
from xml.etree import ElementTree

from effaudit.gate_rows import GAINED, GateResult, GateRow
from effaudit.renderers._layout import printable
from effaudit.renderers._verdicts import cells, tally
from effaudit.renderers.markdown import escape

_MARKS = {0: "✅", 1: "❌", 2: "⚠️"}  # GitHub shows them in its own colours


def render_json(result: GateResult) -> str:
    """One document: the exit code, the outcome in words, the rows."""
    document = {
        "exit_code": result.exit_code,
        "outcome": result.outcome,
        "rows": [dataclasses.asdict(row) for row in result.rows],
    }
    return json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False)


def render_markdown(result: GateResult, title: str) -> str:
    """The outcome, what needs attention and what improved, and all rows folded away."""
    blocks = [[f"### {_MARKS[result.exit_code]} effaudit gate: {escape(title)}: {result.outcome} ({tally(result)})"]]
    blocks.append([_item(row) for row in result.rows if row.needs_attention])
    blocks.append([_item(row) for row in result.rows if row.verdict in GAINED])
    if result.rows:
        blocks.append(["<details><summary>all figures</summary>"])
        blocks.append(_table(result))
        blocks.append(["</details>"])
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _item(row: GateRow) -> str:
    hint = f" Hint: {escape(row.hint)}" if row.hint else ""
    return f"- **{row.verdict}** {escape(row.model)} {escape(row.measurement)}: {escape(row.why)}.{hint}"


def _table(result: GateResult) -> list[str]:
    lines = [
        "| model | measurement | baseline | current | change | tolerance | verdict |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    for row in result.rows:
        shown = (row.model, row.measurement, *cells(row), row.verdict)
        lines.append("| " + " | ".join(escape(cell) for cell in shown) + " |")
    return lines


def render_junit(result: GateResult, title: str) -> str:
    """A suite a model, a case a measurement; what is undecided is an error, not a failure."""
    top = ElementTree.Element("testsuites", name=printable(f"effaudit gate: {title}"))
    for model, rows in groupby(result.rows, key=lambda row: row.model):
        suite = ElementTree.SubElement(top, "testsuite", name=printable(model))
        counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
        for row in rows:
            outcome = _junit_outcome(row)
            for name in ("tests", outcome):
                counts[name] = counts.get(name, 0) + 1
            case = ElementTree.SubElement(
                suite, "testcase", classname=printable(f"effaudit.{row.model}"), name=printable(row.measurement)
            )
            if outcome != "passed":
                tag = {"failures": "failure", "errors": "error"}.get(outcome, outcome)
                told = ElementTree.SubElement(case, tag, message=printable(row.why))
                told.text = _one_line(row)
        for name in ("tests", "failures", "errors", "skipped"):
            suite.set(name, str(counts[name]))
    ElementTree.indent(top)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(top, encoding="unicode") + "\n"


def _junit_outcome(row: GateRow) -> str:
    if row.verdict in ("skipped", "undecided"):
        return "skipped" if row.verdict == "skipped" else "errors"
    return "failures" if row.needs_attention else "passed"


def _one_line(row: GateRow) -> str:
    before, after, change, tolerance = cells(row)
    told = f"{row.verdict}: {before} -> {after} ({change}, tolerance {tolerance}): {row.why}"
    return printable(f"{told}; {row.hint}" if row.hint else told)


def render_github(result: GateResult, baseline: str | None) -> str:
    """A workflow command a row that fails the build or improved; `baseline` is the file that they point to."""
    place = f"file={_property(baseline)}," if baseline else ""
    lines = []
    for row in result.rows:
        if row.needs_attention or row.verdict in GAINED:
            level = "error" if row.needs_attention else "notice"
            title = _property(f"effaudit: {row.model} {row.measurement} {row.verdict}")
            lines.append(f"::{level} {place}title={title}::{_data(_one_line(row))}")
    return "\n".join(lines)


def _data(text: str) -> str:
    return printable(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
