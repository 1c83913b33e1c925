import json
from xml.etree import ElementTree

import pytest

from effaudit.gate_rows import GateResult, GateRow, GateVerdict, whole_model
from effaudit.gating import gate
from effaudit.renderers._build_server import render_github, render_json, render_junit, render_markdown
from tests.fakes_records import figure, record


def row(verdict: GateVerdict, measurement: str = "flops.executed", model: str = "dense", why: str = "why") -> GateRow:
    hint = "mend it" if verdict in ("regressed", "slower", "undecided") else ""
    return GateRow(model, measurement, "FLOP", 100, 102, 0.02, None, 0.0, verdict, why, hint)


ALL = GateResult(
    (
        row("regressed"),
        row("improved", "params"),
        row("undecided", "latency.p50"),
        row("skipped", "memory.peak"),
        row("pass", "macs.executed", model="tsa"),
        row("slower", "latency.p50", model="tsa"),
        whole_model("new", "skipped", "not in the baseline", "update it"),
    )
)


def test_markdown_names_what_needs_attention_and_what_improved() -> None:
    text = render_markdown(ALL, "ci")
    first, attention, gains, *_ = text.split("\n\n")
    assert first == (
        "### ❌ effaudit gate: ci: regressed (1 regressed, 1 improved, 1 undecided, 2 skipped, 1 pass, 1 slower)"
    )
    assert attention.splitlines() == [
        "- **regressed** dense flops.executed: why. Hint: mend it",
        "- **undecided** dense latency.p50: why. Hint: mend it",
        "- **slower** tsa latency.p50: why. Hint: mend it",
    ]
    assert gains == "- **improved** dense params: why."
    assert "| dense | flops.executed | 100 FLOP | 102 FLOP | \\+2.00 % | 0.0 % | regressed |" in text
    assert "nothing in common" in render_markdown(GateResult(()), "ci")


def test_junit_counts_failures_errors_and_skips() -> None:
    tree = ElementTree.fromstring(render_junit(ALL, "ci"))
    suites = {suite.get("name"): suite for suite in tree.iter("testsuite")}
    counts = [suites["dense"].get(name) for name in ("tests", "failures", "errors", "skipped")]
    assert counts == ["4", "1", "1", "1"]
    assert [suites["tsa"].get(name) for name in ("tests", "failures", "errors", "skipped")] == ["2", "1", "0", "0"]
    (failure,) = suites["dense"].iter("failure")
    assert failure.get("message") == "why"
    assert failure.text == "regressed: 100 FLOP -> 102 FLOP (+2.00 %, tolerance 0.0 %): why; mend it"
    assert suites["new"].find("testcase/skipped") is not None


def test_github_gets_a_line_a_row_that_matters() -> None:
    lines = render_github(ALL, "a,b:c.json").splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["::error", "::notice", "::error", "::error"]
    assert lines[0] == (
        "::error file=a%2Cb%3Ac.json,title=effaudit%3A dense flops.executed regressed::"
        "regressed: 100 FLOP -> 102 FLOP (+2.00 %25, tolerance 0.0 %25): why; mend it"
    )
    assert render_github(GateResult((row("pass"),)), None) == ""


@pytest.mark.parametrize("text", ["a\n::error::b", "a\r\x1b[31m\x00b", "</failure>&<x>", "| a | `b` [c](d)", "\ud800"])
def test_nothing_in_a_name_is_read_as_markup(text: str) -> None:
    result = GateResult((row("regressed", model=text, why=text),))
    assert len(render_github(result, None).splitlines()) == 1
    (case,) = ElementTree.fromstring(render_junit(result, text)).iter("testcase")
    assert case.find("failure") is not None
    assert len(render_markdown(result, text).splitlines()) == 11
    assert json.loads(render_json(result))["rows"][0]["verdict"] == "regressed"


def test_json_is_json_even_where_a_change_is_infinite() -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    none, one = ([record(measurements=[figure("flops.executed", n, "FLOP")])] for n in (0, 1))
    found = json.loads(render_json(gate(one, none)), parse_constant=refuse)
    assert found["exit_code"] == 1
    assert found["outcome"] == "regressed"
    assert found["rows"][0]["change"] is None
