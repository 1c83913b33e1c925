import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from effaudit.record import AuditRecord, LayerRow, ModuleRow
from effaudit.renderers import figures
from effaudit.renderers._shares import by_layer
from effaudit.renderers._topics import _style, ladder, modules, quality
from effaudit.renderers._topics._drawing import Drawing, inline, png, svg, variable
from effaudit.renderers._topics._heat import _HIGH, _LOW, _ON_HIGH, _ON_LOW, _TURN, _colour
from tests.fakes_findings import complete
from tests.fakes_records import dense, everyone, examples, figure, latency, record, tsa
from tests.renderers.test_files import renamed

SAME_DATA = "published, same data"
SVG = "{http://www.w3.org/2000/svg}"
ALL = [
    "ladder",
    "denominators",
    "quality-flops",
    "quality-time",
    "difficulty",
    "layers",
    "exits",
    "token-classes-1",
    "controls",
    "latency",
    "memory",
    "energy",
    "modules",
]


@pytest.fixture(scope="module")
def drawn() -> list[Drawing]:
    return figures.drawings(complete(), examples())


def texts(drawing: Drawing) -> set[str | None]:
    return {element.text for element in ElementTree.fromstring(svg(drawing)).iter(f"{SVG}text")}


def test_every_figure_that_can_be_filled_is_drawn_and_has_its_data_in_a_table(drawn: list[Drawing]) -> None:
    assert [drawing.name for drawing in drawn] == ALL
    for drawing in drawn:
        assert len(drawing.alt) > 40
        assert drawing.table.rows
        assert {len(row) for row in drawing.table.rows} == {len(drawing.table.heads)}


def test_files_are_valid_and_the_same_bytes_again(tmp_path: Path) -> None:
    first = figures.write_figures(everyone(), tmp_path / "a", examples())
    second = figures.write_figures(everyone(), tmp_path / "b", examples())
    assert [path.name for path in first[:4]] == ["ladder.svg", "ladder.png", "quality-flops.svg", "quality-flops.png"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
        if one.suffix == ".svg":
            text = one.read_text(encoding="utf-8")
            assert "<dc:date>" not in text
            ElementTree.fromstring(text)
        else:
            assert one.read_bytes().startswith(b"\x89PNG\r\n")


def test_only_what_the_records_can_fill_is_drawn() -> None:
    assert [drawing.name for drawing in figures.drawings([record()])] == ["ladder"]
    for drawing in figures.drawings([]):
        assert ElementTree.fromstring(svg(drawing)) is not None


def test_ladder_shows_every_model_but_the_reference() -> None:
    shown = {element.text for element in ElementTree.fromstring(figures.render(everyone())).iter(f"{SVG}text")}
    assert {"tsa", "budgetformer", "early_exit", "claimed", "energy"} <= shown
    assert "dense" not in shown


@pytest.mark.parametrize(("dataset", "keys"), [("graded", {"published"}), ("enwik8", {"published", SAME_DATA})])
def test_published_figures_are_marked_on_the_bars_of_the_models_they_are_about(dataset: str, keys: set[str]) -> None:
    profile = {"size": {"n_layers": 4}, "reference": ["tsa"]}
    work = dense().workload.model_copy(update={"dataset": dataset})
    records = [one.model_copy(update={"profile": profile, "workload": work}) for one in everyone()]
    drawing = ladder.drawing(records)
    assert {text for text in texts(drawing) if text and text.startswith("published")} == keys
    assert "what the papers published" in drawing.alt
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in ladder.reference(records).rows}
    assert rows["TSA, enwik8"][:6] == ["-13.9 %", "–", "–", "0.0 %", "–", "tsa claimed -45.0 %, latency +4.0 %"]
    (told,) = ladder.sources(records)
    assert told.startswith("tsa as published: claimed: TSA paper, arXiv 2605.05222, tables 2 and 3; skipped: the hard")


def test_a_control_is_not_what_a_paper_is_about() -> None:
    drawn = tsa().model.model_copy(update={"options": {"routing": "random_fixed"}})
    profile = {"size": {"n_layers": 4}, "reference": ["tsa"]}
    records = [dense(), tsa().model_copy(update={"model": drawn, "profile": profile})]
    assert SAME_DATA not in texts(ladder.drawing(records))
    assert "published" not in texts(ladder.drawing(records))
    assert {row[6].text for row in ladder.reference(records).rows} == {"–"}


def test_names_of_many_columns_are_slanted() -> None:
    from matplotlib.figure import Figure

    for n, angle in ((3, 0), (7, 25)):
        ax = Figure().subplots()
        _style.name_columns(ax, ["budgetformer"] * n)
        assert {label.get_rotation() for label in ax.get_xticklabels()} == {angle}


def test_hostile_names_are_text() -> None:
    name = "<b>é模$x"
    for drawing in figures.drawings([dense(), renamed(tsa(), name)], {name: examples()["tsa"]}):
        element = ElementTree.fromstring(inline(drawing).replace("xlink:href", "href"))
        assert not list(element.iter("b"))
        assert name in {part.text for part in element.iter("text")} or name in drawing.alt or drawing.name == "modules"


def test_ids_of_inline_figures_do_not_meet(drawn: list[Drawing]) -> None:
    ids = [i for drawing in drawn for i in re.findall(r'\bid="([^"]+)"', inline(drawing))]
    assert len(ids) == len(set(ids))
    for drawing in drawn:
        used = set(re.findall(r"url\(#([^)]+)\)|href=\"#([^\"]+)\"", inline(drawing)))
        assert {a or b for a, b in used} <= set(ids)


def test_inline_figures_take_the_colours_of_the_page(drawn: list[Drawing]) -> None:
    for drawing in drawn:
        text = inline(drawing)
        assert "http" not in text
        assert not {_style.INK, _style.PAPER, *_style.DARK_OF} & set(re.findall(r"#[0-9a-f]{6}", text))
        assert 'role="img"' in text
    assert f"var({variable(_style.SERIES[0][0])})" in inline(drawn[2])


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_colours_stand_out_from_light_and_from_dark_pages() -> None:
    css = (Path(figures.__file__).parent / "_report.css").read_text(encoding="utf-8")
    light, dark = (dict(re.findall(r"--([\w-]+): (#\w{6})", part)) for part in css.split("@media", 2)[:2])
    for drawn_in, shown_in in _style.DARK_OF.items():
        assert contrast(drawn_in, light["page"]) >= 3
        assert contrast(shown_in, dark["page"]) >= 3
    for page in (light, dark):
        for ground in (page["page"], page["panel"]):
            assert min(contrast(page[ink], ground) for ink in ("ink", "soft", "link", "good", "bad", "doubt")) >= 4.5
        assert min(contrast(page["ink"], page[shade]) for shade in ("r1", "r2", "r3", "r4")) >= 4.5
        for kind in ("good", "bad", "doubt"):
            assert contrast(page[kind], page[f"{kind}-panel"]) >= 4.5


def test_figures_of_a_heat_map_stand_out_from_their_cells() -> None:
    assert _colour(0.0) == "#" + bytes(_LOW).hex()
    assert _colour(1.0) == _colour(7.0) == "#" + bytes(_HIGH).hex()
    assert min(contrast(_ON_LOW, _colour(i / 100)) for i in range(int(_TURN * 100) + 1)) >= 4.5
    assert min(contrast(_ON_HIGH, _colour(i / 100)) for i in range(int(_TURN * 100) + 1, 101)) >= 4.5
    assert contrast(_ON_LOW, _colour(None)) >= 4.5


def test_models_keep_their_look_and_differ_in_more_than_colour() -> None:
    records = [dense(), *(renamed(tsa(), f"m{i}") for i in range(9))]
    looks = [_style.look(one, records) for one in records]
    assert looks[0].colour == _style.INK
    assert len(set(looks)) == len(looks)
    assert len({look.marker for look in looks[:7]}) == 7


def of(name: str, accuracy: float, flops: int) -> AuditRecord:
    measured = figure("quality.accuracy", accuracy, better="higher")
    return record(name, measurements=[measured, figure("flops.executed", flops, "FLOP")])


def test_the_front_holds_the_models_that_none_other_beats() -> None:
    records = [of("dense", 0.9, 100), of("good", 0.9, 50), of("cheap", 0.8, 20), of("bad", 0.7, 30), of("tie", 0.8, 20)]
    found = quality.pareto(records, "flops.executed")
    assert {point.record.model.name: point.is_on_front for point in found} == {
        "dense": False,
        "good": True,
        "cheap": True,
        "bad": False,
        "tie": True,
    }


def test_where_less_is_better_the_front_is_low() -> None:
    def language(name: str, bits: float, flops: int) -> AuditRecord:
        found = [figure("quality.bpc", bits, "bit"), figure("flops.executed", flops, "FLOP")]
        work = record().workload.model_copy(update={"task": "causal_lm"})
        return record(name, measurements=found, workload=work)

    found = quality.pareto([language("dense", 2.0, 100), language("tsa", 2.1, 120)], "flops.executed")
    assert [point.is_on_front for point in found] == [True, False]


def test_times_of_another_machine_are_not_drawn_beside_each_other() -> None:
    quick = [figure("quality.accuracy", 0.9, better="higher"), latency(0.01), figure("flops.executed", 9, "FLOP")]
    records = [record("dense", measurements=quick), record("tsa", measurements=quick, fingerprint="machine-b")]
    assert len(quality.pareto(records, "flops.executed")) == 2
    assert len(quality.pareto(records, "latency.p50")) == 1


def test_modules_of_all_layers_are_added_up_each_flop_once() -> None:
    rows = [("", 100), ("blocks", 90), ("blocks.0", 50), ("blocks.0.attn", 30), ("blocks.0.attn.qkv", 20)]
    rows += [("blocks.1", 40), ("blocks.1.attn", 10), ("blocks.1.ffn", 30), ("head", 4)]
    kinds = modules.by_kind([ModuleRow(path=path, flops=flops, calls=1) for path, flops in rows])
    assert kinds == {"everything else": 6, "blocks.*": 20, "blocks.*.attn": 40, "blocks.*.ffn": 30, "head": 4}
    assert sum(kinds.values()) == 100


def test_layers_that_exits_have_left_are_skipped() -> None:
    rows = [LayerRow(layer=i, exit_share=share) for i, share in ((1, 0.25), (2, 0.75))]
    (found,) = by_layer([record("early_exit", layers=rows)])
    assert [share.skipped for share in found.shares] == pytest.approx([0.0, 0.25])
    assert [share.claimed for share in found.shares] == [None, None]


def test_energy_is_drawn_by_domain_with_how_each_was_had(drawn: list[Drawing]) -> None:
    table = next(drawing.table for drawing in drawn if drawing.name == "energy")
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["dense", "all domains", "3.20 J ~", "modelled: codecarbon"],
        ["tsa", "cpu", "1.30 J m", "measured: RAPL"],
        ["tsa", "ram", "2.00 J ~", "modelled: 20 W assumed"],
        ["budgetformer", "all domains", "2.40 J m", "measured: RAPL"],
    ]


def test_png_is_of_readable_size(drawn: list[Drawing]) -> None:
    image = png(drawn[0])
    width, height = (int.from_bytes(image[i : i + 4], "big") for i in (16, 20))
    assert (width, height) == (960, 544)
