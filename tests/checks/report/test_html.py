"""The page: one file that needs nothing else, on a wide screen and on a phone."""

import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from reports import FAULTS, report_of

from opsmith.checks.run_report import Report

VOID = {"meta", "input", "br", "link", "img", "hr"}


class Reader(HTMLParser):
    """Collects what a page is made of, and holds every element to be closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)

    def attributes(self, name: str) -> list[str]:
        return [own[name] or "" for _, own in self.elements if name in own]


@pytest.fixture(scope="module")
def text() -> str:
    return report_of(40).to_html()


@pytest.fixture(scope="module")
def page(text) -> Reader:
    return Reader(text)


def test_the_page_is_one_file_that_fetches_nothing(page, text):
    for tag, own in page.elements:
        assert tag not in ("link", "img", "iframe", "object", "embed"), tag
        assert not {"src", "href", "srcset", "action", "background"} & set(own), (tag, own)
    (policy,) = [own["content"] for _, own in page.elements if "http-equiv" in own]
    assert policy.startswith("default-src 'none'; ")
    styles = "".join(page.texts["style"])
    assert not re.search(r"url\(|@import|@font-face", styles)
    # Names of vocabularies are no addresses that anything is fetched from.
    addresses = set(re.findall(r"https?://[^\"'\s)<]+", text)) - {"http://www.w3.org/2000/svg"}
    assert addresses == set()


def test_the_page_is_sound_html(page):
    assert page.elements[0][0] == "html"
    counts = Counter(page.attributes("id"))
    assert [name for name, count in counts.items() if count > 1] == []
    for name in page.attributes("aria-labelledby"):
        assert name in counts
    styles = "".join(page.texts["style"])
    assert styles.count("{") == styles.count("}") > 50


def test_what_a_kernel_says_is_text_and_never_markup(text, page):
    assert "<b>nan</b>" not in text
    assert "</script><b>" not in text
    assert any("</script><b>nan</b>" in one for one in page.texts["pre"])


def test_the_failures_come_before_the_operators_with_message_and_code(text):
    assert text.index('id="failures"') < text.index('id="matrix"')
    before = text[: text.index('id="matrix"')]
    for (operator, check), code in FAULTS.items():
        assert f"<b>{operator}</b> <span>{check}</span>" in before
        assert f'<code class="code">{code}</code>' in before
    assert before.count("smallest case") == len(FAULTS)
    assert before.count("<pre>import torch\nx = torch.eye(2)</pre>") == len(FAULTS)


def test_the_operators_that_failed_are_the_first_lines(page):
    lines = [own["data-operator"] for tag, own in page.elements if tag == "tr" and own]
    assert len(lines) == 40
    assert lines[:3] == ["many::operator_7", "many::operator_31", "many::operator_0"]


def test_a_page_without_failures_or_rows_is_a_page():
    assert 'id="failures"' not in report_of(2).to_html()
    Reader(Report([]).to_html())


def test_the_page_of_forty_operators_stays_small(text):
    assert len(text) < 2_000_000


# --- in a browser --------------------------------------------------------------------------------


@pytest.fixture
def opened(browser, text, tmp_path):
    """Open the page in a window of some width; the test fails where the console says anything."""
    said: list[str] = []
    pages = []
    file = Path(tmp_path, "report.html")
    file.write_text(text, encoding="utf-8")

    def show(width: int, scheme: str = "light"):
        one = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
        one.on("console", lambda message: said.append(message.text))
        one.on("pageerror", lambda error: said.append(str(error)))
        one.on(
            "request",
            lambda request: None if request.url.startswith("file:") else said.append(request.url),
        )
        one.goto(file.as_uri())
        pages.append(one)
        return one

    yield show
    for one in pages:
        one.close()
    assert said == []


def lines(page) -> list[str]:
    return page.eval_on_selector_all(
        "#matrix tbody tr", "all => all.filter(e => !e.hidden).map(e => e.dataset.operator)"
    )


def failures(page) -> list[str]:
    return page.eval_on_selector_all(
        ".failure", "all => all.filter(e => e.offsetHeight > 0).map(e => e.dataset.code)"
    )


def test_a_failure_is_what_one_sees_first(opened):
    page = opened(1200)
    first = page.locator(".failure").first
    assert first.bounding_box()["y"] < 400
    assert "OPS-LAYOUT-STRIDE" in first.inner_text()
    assert "</script><b>nan</b>" in first.inner_text()


def test_the_filters_leave_what_they_say(opened):
    page = opened(1200)
    assert len(lines(page)) == 40
    page.check("#filter-failed")
    assert lines(page) == ["many::operator_7", "many::operator_31"]
    page.select_option("#filter-code", "OPS-GRADIENT-WRONG")
    assert lines(page) == ["many::operator_31"]
    assert failures(page) == ["OPS-GRADIENT-WRONG"]
    assert page.inner_text("#shown") == "1 of 40 kernels"
    page.select_option("#filter-runtime", "torch.compile")
    assert lines(page) == failures(page) == []
    assert page.is_visible("#nothing")
    page.select_option("#filter-code", "")
    assert lines(page) == ["many::operator_7"]
    assert failures(page) == ["OPS-COMPILE-WRONG"]
    page.select_option("#filter-runtime", "")
    page.uncheck("#filter-failed")
    page.fill("#filter-name", "OPERATOR_3")
    assert len(lines(page)) == 11


def test_a_cell_opens_what_was_checked(opened):
    page = opened(1200)
    page.click('tr[data-operator="many::operator_7"] button[data-runtime="eager"]')
    panel = page.inner_text("#panel")
    assert panel.startswith("many::operator_7 · cpu · eager")
    assert panel.index("✗ layouts") < panel.index("✓ reference")
    assert "18 cases · error >999 · 0.4 s" in panel
    for words in ("boundary sizes", "transposed", "OPS-LAYOUT-STRIDE", "repeat: opsmith check"):
        assert words in panel
    assert page.locator("#panel svg").count() == 2
    assert page.locator("#panel svg circle").count() > 3
    page.keyboard.press("Escape")
    assert not page.is_visible("#panel")


def test_an_operators_name_opens_all_of_it_and_has_an_address(opened):
    page = opened(1200)
    page.click('tr[data-operator="many::operator_0"] th button')
    assert "✓ gradient" in page.inner_text("#panel")
    assert page.url.endswith("#many%3A%3Aoperator_0/cpu/")
    again = opened(1200)
    again.goto(page.url)
    again.reload()
    assert "✓ gradient" in again.inner_text("#panel")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_it_without_scrolling_sideways(opened, scheme):
    page = opened(390, scheme)
    width = "document.documentElement.scrollWidth"
    assert page.evaluate(width) == 390
    page.check("#filter-failed")
    assert lines(page) == ["many::operator_7", "many::operator_31"]
    assert page.locator('tr[data-operator="many::operator_0"]').is_hidden()
    page.click('tr[data-operator="many::operator_7"] button[data-runtime="eager"]')
    assert page.evaluate(width) == 390
    panel = "document.getElementById('panel')"
    assert page.evaluate(f"{panel}.scrollWidth <= {panel}.clientWidth")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(21, 24, 28)")
