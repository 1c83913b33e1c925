"""The HTML report as a browser shows it, offline."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from effaudit.renderers import html
from tests.browser import NO_BROWSER, Tab, browser, find_browser
from tests.fakes_findings import complete
from tests.fakes_records import examples
from tests.renderers.test_files import renamed

pytestmark = pytest.mark.skipif(find_browser() is None, reason=NO_BROWSER)

HOSTILE = "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
MODELS = "#table tbody th"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    records = complete()
    records[2] = renamed(records[2], HOSTILE)
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html.render(records, examples()), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def texts(tab: Tab, selector: str) -> list[str]:
    found: list[str] = tab.ask(f"[...document.querySelectorAll({selector!r})].map((e) => e.textContent.trim())")
    return found


def all_of(tab: Tab, selector: str, what: str) -> list[Any]:
    found: list[Any] = tab.ask(f"[...document.querySelectorAll({selector!r})].map((e) => {what})")
    return found


@pytest.mark.parametrize(("width", "is_dark"), [(1400, False), (390, True)])
def test_it_asks_for_nothing_and_complains_of_nothing(tab: Tab, page: Path, width: int, is_dark: bool) -> None:
    tab.requests.clear()
    tab.open(page, width, is_dark)
    assert tab.ask("document.title").startswith("effaudit: ")
    assert tab.requests == [page.resolve().as_uri()]
    assert tab.complaints == []


@pytest.mark.parametrize("width", [1400, 390])
def test_every_figure_has_a_size_and_the_page_never_scrolls_sideways(tab: Tab, page: Path, width: int) -> None:
    tab.open(page, width)
    sizes = all_of(tab, "figure svg", "[e.getBoundingClientRect().width, e.getBoundingClientRect().height]")
    assert len(sizes) == 13
    assert min(min(size) for size in sizes) > 60
    assert all_of(tab, "figure svg", "e.getAttribute('aria-label').length > 40") == [True] * 13
    assert tab.ask("document.documentElement.scrollWidth") <= width


def test_hostile_names_are_text(tab: Tab, page: Path) -> None:
    tab.open(page)
    assert HOSTILE in texts(tab, MODELS)
    assert tab.ask("document.images.length + document.scripts.length") == 1
    assert tab.ask("document.title") != "taken"


def test_a_script_that_slipped_in_would_not_run(tab: Tab, page: Path, tmp_path: Path) -> None:
    slipped = tmp_path / "slipped.html"
    text = page.read_text(encoding="utf-8")
    slipped.write_text(text.replace("<main>", "<main><script>document.title = 'taken'</script>"), encoding="utf-8")
    tab.open(slipped)
    assert tab.ask("document.title") != "taken"
    assert any("Content Security Policy" in complaint for complaint in tab.complaints)
    tab.complaints.clear()


def test_tables_sort_by_what_their_cells_mean(tab: Tab, page: Path) -> None:
    tab.open(page)
    before = texts(tab, MODELS)
    flops = "document.querySelectorAll('#table th[scope=col]')[4]"
    tab.ask(f"{flops}.querySelector('button').click()")
    shown = texts(tab, "#table tbody tr td:nth-child(5)")
    assert shown == ["-30.1 % c+", "-20.0 % c+", "-8.0 % c+", "ref"]  # what has no figure stays last
    assert tab.ask(f"{flops}.getAttribute('aria-sort')") == "ascending"
    tab.ask(f"{flops}.querySelector('button').click()")
    assert texts(tab, "#table tbody tr td:nth-child(5)") == ["-8.0 % c+", "-20.0 % c+", "-30.1 % c+", "ref"]
    tab.ask("document.querySelector('#table th button').click()")  # by name
    assert texts(tab, MODELS) == sorted(before)
    assert all_of(tab, "#table th[scope=col]", "e.ariaSort") == ["ascending", *["none"] * 6]


def test_it_can_be_used_with_the_keyboard(tab: Tab, page: Path) -> None:
    tab.open(page)
    tab.ask("document.querySelector('#table th button').focus()")
    for kind in ("keyDown", "keyUp"):
        tab.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")
    assert tab.ask("document.querySelector('#table th').ariaSort") == "ascending"
    assert all(all_of(tab, ".wide", "e.tabIndex === 0 && !!e.ariaLabel"))  # what scrolls can be reached, and has a name


def test_headings_and_tables_have_their_structure(tab: Tab, page: Path) -> None:
    tab.open(page)
    levels = [int(level) for level in all_of(tab, "h1, h2, h3", "e.tagName.slice(1)")]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert all(all_of(tab, "table", "!!e.caption && [...e.querySelectorAll('th')].every((h) => h.scope)"))
    anchors = all_of(tab, "nav a", "!!document.querySelector(e.getAttribute('href'))")
    assert len(anchors) > 10
    assert all(anchors)


def test_print_shows_what_is_folded_away(tab: Tab, page: Path) -> None:
    tab.open(page)
    assert not any(all_of(tab, "details", "e.open"))
    tab.ask("dispatchEvent(new Event('beforeprint'))")
    assert all(all_of(tab, "details", "e.open"))
    tab.show_as(1000, is_dark=True, medium="print")
    assert tab.ask("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert tab.ask("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    tab.ask("dispatchEvent(new Event('afterprint'))")
    assert not any(all_of(tab, "details", "e.open"))


def test_dark_pages_have_light_text(tab: Tab, page: Path) -> None:
    seen = {}
    for is_dark in (False, True):
        tab.open(page, 1400, is_dark)
        body = "getComputedStyle(document.body)"
        ink, ground = tab.ask(f"[{body}.color, {body}.backgroundColor]")
        bar = tab.ask("getComputedStyle(document.querySelector('#figure-modules path[style*=\"fill: var\"]')).fill")
        seen[is_dark] = (ink, ground, bar)
    assert seen[False][:2] == ("rgb(27, 31, 36)", "rgb(255, 255, 255)")
    assert seen[True][:2] == ("rgb(230, 237, 243)", "rgb(13, 17, 23)")
    assert seen[False][2] != seen[True][2]
