"""Who types the words for a trouble finds the page on it: they are where a search looks first."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
NAVIGATION = (REPOSITORY / "properdocs.yml").read_text().partition("\nnav:\n")[2]


def first_words(page: str) -> str:
    """The title and the headings of a page, and its first paragraph."""
    text = (REPOSITORY / "docs" / page).read_text()
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return "\n".join([*headings, text.split("\n\n")[1]]).lower()


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("how-to/debug.md", "segfault"),
        ("how-to/debug.md", "segmentation fault"),
        ("how-to/debug.md", "illegal memory access"),
        ("how-to/debug.md", "crashes hangs"),
        ("how-to/debug.md", "a crash gdb"),
        ("how-to/debug.md", "printf"),
        ("how-to/load_inline.md", "load_inline"),
        ("how-to/load_inline.md", "cpp_extension"),
        ("how-to/load_inline.md", "CUDAExtension"),
        ("how-to/load_inline.md", "BuildExtension setup.py"),
        ("how-to/load_inline.md", "PYBIND11_MODULE"),
        ("how-to/fast_reference.md", "slow reference"),
        ("how-to/fast_reference.md", "cut short timeout"),
        ("how-to/fast_kernel.md", "slow kernel"),
        ("how-to/fast_kernel.md", "performance profile"),
        ("how-to/large_tensors.md", "large tensors"),
        ("how-to/large_tensors.md", "32-bit indices"),
        ("how-to/large_tensors.md", "int32 overflow"),
        ("reference/sheet.md", "cheat sheet"),
        ("reference/sheet.md", "cheatsheet"),
        ("reference/sheet.md", "quick reference"),
    ],
)
def test_a_page_is_found_by_the_words_that_one_would_type(page, words):
    said = first_words(page)
    assert [word for word in words.lower().split() if word not in said] == []
    assert f": {page}\n" in NAVIGATION


def test_every_page_that_is_written_is_in_the_navigation():
    docs = REPOSITORY / "docs"
    pages = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    assert {page for page in pages if not re.search(rf"[:-] {page}\n", NAVIGATION)} == set()
