"""The verdicts in a terminal and in Markdown."""

from __future__ import annotations

from collections import Counter

from effaudit.claims.results import Results
from effaudit.claims.verdict import Finding, Verdict
from effaudit.renderers._cells import NOTHING
from effaudit.renderers._layout import wrap
from effaudit.renderers.markdown import escape

HEADS = ("claim", "source", "by its own definition", "as audited", "seeds", "verdict")
_TALLIED: dict[Verdict, str] = {"holds": "hold", "does not hold": "do not hold", "cannot be told": "cannot be told"}
LEGEND = (
    "Figures are means over seeds with 95 % intervals, of quality paired by seed and example. The verdict is on the "
    "figure as audited: it holds where the whole interval does, and cannot be told where the interval reaches to both "
    "sides or there are fewer than three seeds."
)


def tally(results: Results) -> str:
    """How many claims hold, in words."""
    counts = Counter(finding.verdict for finding in results.findings)
    return ", ".join(f"{counts[verdict]} {words}" for verdict, words in _TALLIED.items())


def console(results: Results) -> str:
    """A block a claim, for 80 columns."""
    lines: list[str] = []
    for finding in results.findings:
        lines += wrap(f"{finding.verdict.upper()}: {finding.subject}: {finding.claim}")
        told = [finding.ours, finding.theirs and f"its own definition: {finding.theirs}", finding.reason]
        lines += [line for part in told if part for line in wrap(part, "  ")]
        lines.append("")
    for missing in results.missing:
        lines += wrap(f"missing: {missing.unit}: {missing.reason}")
    return "\n".join([*lines, *wrap(tally(results))])


def markdown(results: Results) -> str:
    """The table, the figures behind it, what is missing."""
    blocks = [
        "# What holds in the two papers",
        f"{escape(tally(results))}. {LEGEND}",
        "\n".join([_row(HEADS), "|---" * len(HEADS) + "|", *(_row(cells(f)) for f in results.findings)]),
    ]
    for table in results.tables:
        heads = [_row(table.heads), "|---|" + "---:|" * (len(table.heads) - 1)]
        blocks.append(f"## {escape(table.caption)}")
        blocks.append("\n".join([*heads, *(_row([cell.text for cell in row]) for row in table.rows)]))
    if results.missing:
        blocks.append("## Missing")
        blocks.append("\n".join(f"- {escape(f'{missing.unit}: {missing.reason}')}" for missing in results.missing))
    return "\n\n".join(blocks) + "\n"


def cells(finding: Finding) -> tuple[str, ...]:
    """In the order of HEADS."""
    claim = f"{finding.subject}: {finding.claim}"
    verdict = f"{finding.verdict}: {finding.reason}" if finding.reason else finding.verdict
    return (claim, finding.source, finding.theirs or NOTHING, finding.ours or NOTHING, str(finding.n_seeds), verdict)


def _row(texts: tuple[str, ...] | list[str]) -> str:
    return "| " + " | ".join(map(escape, texts)) + " |"
