"""The site as `make docs` builds it: complete, readable by programs, and on its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
#: What a page would fetch by itself; a link that a reader may follow is another matter.
FETCHED = re.compile(r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(https?:[^"'> ]+)""")
STYLED = re.compile(
    r"""<link\b[^>]*\brel=["']?(?:stylesheet|icon|preload)[^>]*href=["']?(https?:[^"'> ]+)"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    if not os.environ.get("OPSMITH_REQUIRE_SITE"):
        pytest.importorskip("properdocs", reason="`make docs` installs ProperDocs")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "properdocs", "--quiet", "build", "--site-dir", folder],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_viewing_a_page_fetches_nothing(site):
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert FETCHED.findall(text) + STYLED.findall(text) == [], page
    for sheet in site.rglob("*.css"):
        assert re.findall(r"url\(['\"]?(https?:[^)]+)|@import", sheet.read_text()) == [], sheet


def test_every_page_is_there_as_markdown(site):
    pages = [page for page in site.rglob("*.html") if page.name != "404.html"]
    assert len(pages) > 50
    for page in pages:
        markdown = page.with_suffix(".md")
        readme = page.with_name("README.md") if page.name == "index.html" else markdown
        assert markdown.exists() or readme.exists(), page


def test_llms_txt_lists_the_pages_in_their_order_and_leads_to_them(site):
    text = (site / "llms.txt").read_text()
    assert text.startswith("# opsmith\n\n> ")
    sections = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert sections[1:6] == ["Tutorials", "How-to", "Explanation", "Internals", "Reference"]
    links = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): \S", text, re.MULTILINE)
    assert len(links) == len(re.findall(r"^- ", text, re.MULTILINE)) > 30
    for link in links:
        assert (site / link).exists(), link


# --- in a browser --------------------------------------------------------------------------------


@pytest.fixture
def opened(browser, site):
    """Open a page of the site from its folder; the test fails where it wants anything else."""
    fetched: list[str] = []
    views = []

    def show(place: str, width: int = 1200):
        view = browser.new_page(viewport={"width": width, "height": 844})
        view.on(
            "request",
            lambda one: None if one.url.startswith(("file:", "data:")) else fetched.append(one.url),
        )
        view.goto((site / place).as_uri())
        views.append(view)
        return view

    yield show
    for view in views:
        view.close()
    assert fetched == []


@pytest.mark.parametrize(
    "place",
    [
        "index.html",
        "reference/checks.html",
        "reference/api/opsmith.html",
        "repository/README.zh.html",
        "zh/tutorials/kernel.html",
    ],
)
def test_a_phone_shows_a_page_without_scrolling_sideways(opened, place):
    view = opened(place, width=390)
    assert view.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_search_works_from_a_folder(opened):
    view = opened("index.html")
    assert "reference/failures.html" in searched(view, "OPS-LAYOUT-STRIDE")[0]


@pytest.mark.parametrize("words", ["mmdeploy", "deform_conv2d ONNX Runtime", "DeformConv mmcv"])
def test_who_knows_only_mmdeploy_finds_how_deformable_convolution_gets_to_onnx_runtime(
    opened, words
):
    assert "how-to/mmdeploy.html" in searched(opened("index.html"), words)[0]


@pytest.mark.parametrize("words", ["load_inline", "cpp_extension", "CUDAExtension"])
def test_who_has_an_extension_finds_how_it_becomes_an_operator(opened, words):
    assert "how-to/load_inline.html" in searched(opened("index.html"), words)[0]


@pytest.mark.parametrize(("words", "place"), [("工具包", "cuda"), ("处理器", "wheel")])
def test_the_search_finds_words_inside_of_chinese_sentences(opened, words, place):
    results = searched(opened("index.html"), words)
    assert any(f"zh/tutorials/{place}.html" in link for link in results)


def searched(view, words: str) -> list[str]:
    """Return where the results of a search lead, the best first."""
    view.click("input.md-search__input")
    view.keyboard.type(words)
    view.keyboard.press("Shift")  # Chinese comes without a key of its own; an input method has one
    view.wait_for_selector("a.md-search-result__link")
    return [
        link.get_attribute("href") for link in view.query_selector_all("a.md-search-result__link")
    ]
