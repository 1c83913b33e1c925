"""The renderers that write files: CSV, Markdown, SVG."""

import csv
import io
import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from effaudit.record import AuditRecord, LayerRow, to_json
from effaudit.renderers import csv as csv_renderer
from effaudit.renderers import figures, markdown
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
    expected = [(r.model.name, m) for r in records for m in r.measurements]
    assert len(rows) == len(expected)
    for row, (name, m) in zip(rows, expected, strict=True):
        value = json.loads(row["value"]) if row["value"] else None
        assert (row["model"], row["measurement"], value) == (name, m.name, m.value)
        assert (row["unit"], row["better"], row["source"], row["method"]) == (m.unit, m.better, m.source, m.method)


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
    assert "| tsa | 93.9 % c | -45.0 % c | -42.0 % c | -30.1 % c | \\+4.0 % m | \\+3.1 % \\~ |" in text
    assert "- latency varied by 12 % between rounds (tsa) Hint: close other programs" not in text
    assert "- latency varied by 12 % between rounds \\(tsa\\) Hint: close other programs" in text


def test_markdown_shows_hostile_names_as_text() -> None:
    text = markdown.render([dense(), renamed(tsa(), HOSTILE)])
    assert "<script>" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1


def test_figures_are_the_same_bytes_and_valid_xml(tmp_path: Path) -> None:
    first = figures.write_figures(everyone(), tmp_path / "a", examples())
    second = figures.write_figures(everyone(), tmp_path / "b", examples())
    assert [path.name for path in first] == ["ladder.svg", "quality.svg", "layers.svg", "difficulty.svg"]
    for one, other in zip(first, second, strict=True):
        text = one.read_text(encoding="utf-8")
        assert text == other.read_text(encoding="utf-8")
        assert "<dc:date>" not in text
        ElementTree.fromstring(text)


def test_ladder_shows_every_model_but_the_reference() -> None:
    root = ElementTree.fromstring(figures.render(everyone()))
    texts = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"tsa", "budgetformer", "early_exit", "claimed", "energy"} <= texts
    assert "dense" not in texts


def test_figures_show_hostile_names_as_text() -> None:
    odd = [dense(), renamed(tsa(), "<b>é模$x")]
    for drawing in figures.draw(odd):
        texts = [e.text for e in ElementTree.fromstring(drawing.svg).iter("{http://www.w3.org/2000/svg}text")]
        assert "<b>é模$x" in texts


def test_ids_of_inline_figures_do_not_meet() -> None:
    drawings = figures.draw(everyone(), examples())
    ids = [i for drawing in drawings for i in re.findall(r'\bid="([^"]+)"', drawing.inline)]
    assert len(ids) == len(set(ids))
    for drawing in drawings:
        used = set(re.findall(r"url\(#([^)]+)\)|href=\"#([^\"]+)\"", drawing.inline))
        assert {a or b for a, b in used} <= set(re.findall(r'\bid="([^"]+)"', drawing.inline))


def test_only_figures_that_can_be_filled_are_drawn(tmp_path: Path) -> None:
    assert [path.name for path in figures.write_figures([record()], tmp_path)] == ["ladder.svg"]
    ElementTree.fromstring(figures.render([]))


def test_layer_rates_of_exits_are_what_still_runs() -> None:
    hard, soft = figures.layer_rates([LayerRow(layer=i, exit_share=share) for i, share in ((1, 0.25), (2, 0.75))])
    assert hard == pytest.approx({1: 1.0, 2: 0.75})
    assert soft == {}
