import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from effaudit.profile_spec import builtin_profiles, load_profile
from effaudit.record import AuditRecord, Caution, TextSample
from effaudit.renderers import html
from effaudit.renderers._tags import tags
from effaudit.renderers._text_samples import shaded
from tests.fakes_findings import complete, with_layers
from tests.fakes_records import dense, everyone, examples, figure, latency, record, tsa

HOSTILE = "<script>alert(1)</script>\"' onload=x é模\x00"
VOID = {"meta", "link", "br"}
SECTIONS = (
    "Summary",
    "Side by side",
    "From claim to clock",
    "Quality against cost",
    "Matched",
    "Against controls",
    "By difficulty",
    "Where models skip",
    "Time, memory, energy",
    "FLOPs by module",
    "Text samples",
    "All measurements",
    "Cautions",
    "Not available",
    "Environment and methods",
    "Reproduce",
)


class Page(HTMLParser):
    """Collects tags, texts, ids and references; fails on tags that do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id" and value:
                self.ids.append(value)
            if name in ("href", "src", "xlink:href", "srcset", "action", "data") and value:
                self.references.append(value)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def text() -> str:
    return html.render(complete(), examples())


def test_page_is_well_formed_with_headings_and_figures(text: str) -> None:
    page = Page(text)
    assert page.tags.count("h1") == 1
    assert page.tags.count("svg") == page.tags.count("figure") == 13
    assert len(page.ids) == len(set(page.ids))
    for section in SECTIONS:
        assert section in page.text
    anchors = {reference[1:] for reference in page.references if reference.startswith("#")}
    assert anchors <= set(page.ids)


def test_page_needs_nothing_from_outside(text: str) -> None:
    assert all(reference.startswith(("#", "data:")) for reference in Page(text).references)
    assert "@import" not in text
    assert all(target.startswith("#") for target in re.findall(r"url\(\s*['\"]?([^)]*)\)", text))
    assert text.count("<script") == 1
    digest = base64.b64encode(hashlib.sha256(text.split("<script>")[1].split("</script>")[0].encode()).digest())
    assert f"script-src 'sha256-{digest.decode()}'" in text  # no other script can run
    assert "default-src 'none'" in text
    assert not re.findall(r"https?:", text)


def test_page_has_the_tables_sentences_and_reasons(text: str) -> None:
    page = Page(text).text
    assert "not faster, the saving does not arrive on the clock" in page
    assert "-30.1 % c" in page
    assert "+34.1 points" in page  # between FLOPs and latency of tsa
    assert "FLOPs at best" in page
    assert "close other programs" in page
    assert "no country or intensity given" in page
    assert text.isprintable() or all(c == "\n" or c.isprintable() for c in text)


def test_everything_that_comes_from_outside_is_text() -> None:
    caution = Caution(code="x", text=HOSTILE, hint=HOSTILE)
    odd = record(HOSTILE, "tsa", [figure("energy.gross", None, "J", method=HOSTILE)], cautions=[caution])
    odd = odd.model_copy(update={"profile": {"name": HOSTILE, "description": "</code>" + HOSTILE}})
    page = Page(html.render([dense(), odd], {HOSTILE: examples()["tsa"]}))
    assert page.tags.count("script") == 1  # the page's own
    assert "<script>alert(1)</script>" in page.text
    assert "\x00" not in page.text


def of_profile(name: str, **changes: object) -> AuditRecord:
    profile = {**load_profile(name).model_dump(mode="json"), **changes}
    return tsa().model_copy(update={"profile": profile})


@pytest.mark.skipif(not builtin_profiles(), reason="no built-in profile to repeat")
def test_the_command_names_a_built_in_profile_only_while_it_is_unchanged() -> None:
    name = next(iter(builtin_profiles()))
    page = Page(html.render([of_profile(name)])).text
    assert f"effaudit compare {name}\n" in page
    changed = Page(html.render([of_profile(name, seed=987)])).text
    assert f"effaudit compare {name}.yaml" in changed
    assert "seed: 987" in changed


def test_samples_are_cut_shaded_and_shown_as_text() -> None:
    text = html.render(complete())
    start = text.index('id="samples"')
    samples = text[start : text.index("</section>", start)]
    assert '<span class="r0" title="4 of 4 layers">To be, or </span>' in samples
    assert '<span class="r3" title="1 of 4 layers">&lt;b&gt;</span>' in samples
    assert '<span class="r2" title="2 of 4 layers">not&lt;/b&gt;\u21b5\nto be</span>' in samples
    assert samples.count('class="sample"') == 2
    assert len(re.sub(r"<[^>]+>", "", samples.split('class="sample"')[2]).removeprefix(">").strip("\n")) == 200
    assert 'id="samples"' not in html.render(everyone())


def test_what_is_left_out_at_all_is_never_shown_as_nothing() -> None:
    sample = TextSample(index=0, pieces=("a",) * 13, layers_run=tuple(range(13)))
    (found,) = shaded([with_layers(tsa(), 12).model_copy(update={"profile": {}, "text_samples": (sample,)})])
    shades = {part.layers_run: part.shade for part in found.samples[0]}
    assert (shades[12], shades[11], shades[0]) == (0, 1, 4)
    assert list(shades.values()) == sorted(shades.values(), reverse=True)


@pytest.mark.parametrize(
    ("seconds", "accuracy", "said"),
    [
        (0.006, 0.95, ["faster", "accuracy not distinguishable"]),
        (0.006, 0.5, ["faster", "accuracy worse"]),
        (0.5, 0.942, ["slower", "accuracy equal"]),
        (0.012, 0.99, ["no faster", "accuracy better"]),
    ],
)
def test_tags_say_what_the_clock_says_and_what_became_of_the_quality(
    seconds: float, accuracy: float, said: list[str]
) -> None:
    quality = figure("quality.accuracy", accuracy, better="higher")
    records = [dense(), record("tsa", measurements=[latency(seconds), quality])]
    assert [tag.text for tag in tags(records[1], records)] == said
    assert [tag.text for tag in tags(records[0], records)] == ["reference"]


def test_a_model_that_is_a_control_is_tagged_so() -> None:
    fixed = {"name": "drawn", "options": {"routing": "random_fixed"}}
    profile = {"name": "example", "controls": {"trained": {"tsa": "drawn", "other": "drawn"}}}
    one = tsa().model_copy(update={"model": tsa().model.model_copy(update=fixed), "profile": profile})
    assert tags(one, [dense(), one])[0].text == "control of tsa, other"


def test_a_quality_without_an_interval_is_not_called_alike() -> None:
    def language(name: str, bits: float) -> AuditRecord:
        return record(name, measurements=[figure("quality.bpc", bits, "bit", source="measured")])

    work = record().workload.model_copy(update={"task": "causal_lm"})
    records = [r.model_copy(update={"workload": work}) for r in (language("dense", 2.0), language("tsa", 2.2))]
    assert [tag.text for tag in tags(records[1], records)] == ["time not comparable", "bpc without an interval"]


def test_the_page_of_five_models_is_small(text: str) -> None:
    samples = [0.01 * (1 + 0.001 * (i % 97)) for i in range(5000)]  # far more than an audit takes
    many = figure("latency.p50", 0.012, "s", "lower", "measured", samples)
    records = [record(f"m{i}", "tsa", [many], modules=dense().modules) for i in range(5)]
    assert len(html.render(records).encode()) < 1_000_000
    assert len(text.encode()) < 1_000_000
