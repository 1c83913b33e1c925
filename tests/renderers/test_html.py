import re
from html.parser import HTMLParser

import pytest

from effaudit.profile_spec import builtin_profiles, load_profile
from effaudit.record import AuditRecord, Caution
from effaudit.renderers import html
from tests.fakes_records import dense, everyone, examples, figure, record, tsa

HOSTILE = "<script>alert(1)</script>\"' onload=x é模\x00"
VOID = {"meta", "link", "br"}


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
    return html.render(everyone(), examples())


def test_page_is_well_formed_with_headings_and_figures(text: str) -> None:
    page = Page(text)
    assert page.tags.count("h1") == 1
    assert page.tags.count("svg") == 4
    assert len(page.ids) == len(set(page.ids))
    for section in ("Summary", "Side by side", "By layer", "By difficulty", "Cautions", "Not available", "Reproduce"):
        assert section in page.text
    anchors = {reference[1:] for reference in page.references if reference.startswith("#")}
    assert anchors <= set(page.ids)


def test_page_needs_nothing_from_outside(text: str) -> None:
    assert all(reference.startswith(("#", "data:")) for reference in Page(text).references)
    assert "@import" not in text
    assert all(target.startswith("#") for target in re.findall(r"url\(\s*['\"]?([^)]*)\)", text))
    assert "<script" not in text


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
    assert "script" not in page.tags
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
