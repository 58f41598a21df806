"""The Chinese pages say what the English ones say: the same parts, code and links.

Their code is that of the English ones, whose steps a test follows: so it is not run again.
"""

import os
from pathlib import Path

import pytest
from steps import steps_of
from translations import FENCE, links, not_in_chinese, structure

DOCS = Path(__file__).parents[2] / "docs"
CHINESE = DOCS / "zh" / "tutorials"
OTHERS = sorted(
    path.relative_to(DOCS / "zh").as_posix()
    for folder in ("how-to", "reference")
    for path in (DOCS / "zh" / folder).glob("*.md")
)
PAGES = sorted(path.name for path in CHINESE.glob("*.md") if path.stem != "index")


def both(name: str) -> tuple[str, str]:
    return (CHINESE / name).read_text(), (DOCS / "tutorials" / name).read_text()


def untranslated(path: Path) -> str:
    """The place of a page below `docs`, that of the original for a translation."""
    return os.path.normpath(os.path.relpath(path, DOCS)).removeprefix("zh/")


def pages_of(text: str) -> set[str]:
    """Return the pages that a text links to: headings have other names in a translation."""
    return {link.partition("#")[0] for link in links(text)} - {""}


def leads_to(text: str, folder: Path) -> set[str]:
    """Return where links lead, from `docs`; for a translation, the place of its original."""
    return {untranslated(folder / page) for page in pages_of(text)}


def assert_chinese_where_there_is(text: str, folder: Path) -> None:
    places = {os.path.normpath(os.path.relpath(folder / page, DOCS)) for page in pages_of(text)}
    assert [place for place in places if (DOCS / "zh" / place).exists()] == []


def test_every_tutorial_is_there():
    english = {path.name for path in (DOCS / "tutorials").glob("*.md")}
    assert {*PAGES, "index.md"} == english


@pytest.mark.parametrize("name", PAGES)
def test_a_tutorial_has_the_same_headings_lists_and_paragraphs(name):
    chinese, english = both(name)
    assert structure(chinese) == structure(english)


@pytest.mark.parametrize("name", PAGES)
def test_a_tutorial_has_the_same_code_and_the_same_steps(name):
    chinese, english = both(name)
    assert FENCE.findall(chinese) == FENCE.findall(english)
    assert list(steps_of(chinese)) == list(steps_of(english))


@pytest.mark.parametrize("name", PAGES)
def test_a_tutorial_leads_to_the_same_places_and_to_chinese_ones_where_there_are(name):
    chinese, english = both(name)
    assert leads_to(chinese, CHINESE) == leads_to(english, DOCS / "tutorials")
    assert_chinese_where_there_is(chinese, CHINESE)


@pytest.mark.parametrize("name", [*PAGES, "index.md"])
def test_a_tutorial_is_in_chinese(name):
    text = (CHINESE / name).read_text()
    # A title may be a name, "ONNX Runtime".
    assert not_in_chinese(text.partition("\n")[2]) == []


def test_the_index_lists_every_translated_tutorial_in_the_order_of_the_original():
    index, original = both("index.md")
    rows = [line for line in index.splitlines() if line.startswith("| [")]
    listed = [next(iter(links(row))) for row in rows]
    order = [original.index(f"({name})") for name in listed]
    assert sorted(listed) == PAGES
    assert order == sorted(order)


@pytest.mark.parametrize("page", OTHERS)
def test_another_page_says_what_the_original_says(page):
    here, there = DOCS / "zh" / page, DOCS / page
    chinese, english = here.read_text(), there.read_text()
    assert structure(chinese) == structure(english)
    assert FENCE.findall(chinese) == FENCE.findall(english)
    assert not_in_chinese(chinese.partition("\n")[2]) == []
    found, original = (
        {untranslated(folder / link.partition("#")[0]) for link in links(text) if link[0] != "#"}
        for text, folder in ((chinese, here.parent), (english, there.parent))
    )
    assert found == original
    assert_chinese_where_there_is(chinese, here.parent)
