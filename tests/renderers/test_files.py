"""The renderers that write files: CSV and Markdown."""

import csv
import io
import json
import re

from effaudit.record import AuditRecord, to_json
from effaudit.renderers import csv as csv_renderer
from effaudit.renderers import markdown
from tests.fakes_findings import complete
from tests.fakes_records import dense, everyone, examples, figure, record, tsa

HOSTILE = "<script>alert('1')</script>|`x`*é模$\\$\x00"


def renamed(one: AuditRecord, name: str) -> AuditRecord:
    return one.model_copy(update={"model": one.model.model_copy(update={"name": name})})


def test_csv_gives_back_every_value_exactly() -> None:
    awkward = record(
        'a "quoted", name',
        measurements=[
            figure("x", 0.1 + 0.2, method="two\nlines"),
            figure("big", 10**17 + 1),
            figure("none", None, method=HOSTILE.replace("\x00", "")),
        ],
    )
    records = [*everyone(), awkward]
    rows = list(csv.DictReader(io.StringIO(csv_renderer.render(records))))
    rows = [row for row in rows if not row["by"]]
    expected = [(r.model.name, m) for r in records for m in r.measurements]
    assert len(rows) == len(expected)
    for row, (name, m) in zip(rows, expected, strict=True):
        value = json.loads(row["value"]) if row["value"] else None
        assert (row["model"], row["measurement"], value) == (name, m.name, m.value)
        assert (row["unit"], row["better"], row["source"], row["method"]) == (m.unit, m.better, m.source, m.method)


def test_csv_has_a_row_for_each_part_of_a_measurement() -> None:
    rows = list(csv.DictReader(io.StringIO(csv_renderer.render(complete(), examples()))))
    found = {(r["model"], r["measurement"], r["by"], r["group"]): (r["value"], r["unit"]) for r in rows}
    assert len(found) == len(rows)  # tidy: one row says one thing
    assert found["tsa", "alpha_hard", "layer", "3"] == ("0.4", "1")
    assert found["early_exit", "exit_share", "layer", "4"] == ("0.3", "1")
    assert found["tsa", "loss", "token class", "rare word"] == ("3.2", "nat")
    assert found["tsa", "flops_routed", "difficulty", "4"] == ("4000000.0", "FLOP")
    assert found["dense", "flops", "module", "blocks.0.attn"] == ("4000000000", "FLOP")
    assert found["tsa", "quality.accuracy", "control", "random"] == ("0.869", "1")


def test_records_are_rfc_8259_json() -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    document = json.loads(to_json([renamed(dense(), HOSTILE)]), parse_constant=refuse)
    assert document["records"][0]["model"]["name"] == HOSTILE


def test_markdown_table_and_sentences() -> None:
    text = markdown.render(everyone())
    assert (
        "| model | accuracy | claimed | skipped | FLOPs | latency | energy |\n|---|---:|---:|---:|---:|---:|---:|"
        in text
    )
    assert "| tsa | 93.9 % c? | -45.0 % c | -42.0 % c | -30.1 % c\\+ | \\+4.0 % m\\! | \\+3.1 % \\~? |" in text
    assert "- latency varied by 12 % between rounds (tsa) Hint: close other programs" not in text
    assert "- latency varied by 12 % between rounds \\(tsa\\) Hint: close other programs" in text


def test_markdown_folds_away_what_the_sentences_rest_on() -> None:
    text = markdown.render(complete(), examples())
    assert text.count("<details>") == text.count("</details>") == 6
    assert "<details><summary>By class of tokens</summary>\n\n| model | class of tokens |" in text
    assert "| tsa | 3 | 60.0 % | 70.0 % | – |" in text
    assert "## Controls\n\n- tsa with random routing" in text


def test_markdown_shows_hostile_names_as_text() -> None:
    text = markdown.render([dense(), renamed(tsa(), HOSTILE)])
    assert "<script>" not in text
    tables = re.split(r"\n(?!\|)", text)
    for table in tables:
        rows = [line for line in table.splitlines() if line.startswith("|")]
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) <= 1
