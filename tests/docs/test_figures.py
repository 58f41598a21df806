"""The figures of the pages are those that the benchmarks kept, and no other is beside them."""

import json
import re
import sys
from collections import Counter
from pathlib import Path

import gallery_page
import pytest
import repository

from opsmith.checks import QUICK

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import figures  # noqa: E402
from sampling import Timings  # noqa: E402

SECTIONS = json.loads(figures.KEPT.read_text(encoding="utf-8"))
#: A time, a factor or a share that stands in a page by hand.
BY_HAND = re.compile(r"\d+(?:\.\d+)? (?:µs|ms|s|×|%)(?!\w)")


def of(page):
    return figures.FIGURE.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", figures.PAGES, ids=lambda page: page.name)
def test_a_page_shows_the_figures_that_were_kept(page):
    stale = [(name, shown) for name, shown in of(page) if shown != figures.kept()[name]]
    assert stale == [], "run: python benchmarks/figures.py"
    assert of(page)


def test_every_kept_figure_is_in_a_page_and_belongs_to_one_script():
    names = [name for section in SECTIONS.values() for name in section["figures"]]
    assert len(names) == len(set(names))
    assert set(names) == {name for page in figures.PAGES for name, _ in of(page)}


def test_both_readmes_show_the_same_figures():
    english, chinese = (ROOT / "README.md", ROOT / "README.zh.md")
    assert sorted(of(english)) == sorted(of(chinese))
    assert len(of(english)) > 10


@pytest.mark.parametrize("page", figures.PAGES, ids=lambda page: page.name)
def test_no_figure_of_a_benchmark_is_entered_by_hand(page):
    text = figures.FIGURE.sub("", page.read_text(encoding="utf-8"))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert [row for row in rows if BY_HAND.search(row)] == []


def test_the_site_shows_figures_without_their_names():
    assert f">{figures.kept()['pool/cameras-faster']} ×</text>" in gallery_page._figures()
    for page in figures.PAGES:
        assert "<!--" not in repository.without_names(page.read_text(encoding="utf-8"))


def test_a_figure_is_written_into_a_page_by_its_name():
    page = "| a call | <!--=call/hand-->2.4 µs<!--/-->, <!--=call/of-hand-->0.8<!--/--> of it |"
    kept = {"call/hand": "3.1 µs", "call/of-hand": "0.9"}
    said = "| a call | <!--=call/hand-->3.1 µs<!--/-->, <!--=call/of-hand-->0.9<!--/--> of it |"
    assert figures.filled(page, kept) == said
    with pytest.raises(KeyError, match="call/hand"):
        figures.filled(page, {})


def test_a_run_keeps_its_figures_only_if_they_are_asked_for(monkeypatch, tmp_path):
    path = tmp_path / "figures.json"
    path.write_text('{"a.py": {"machine": "old", "figures": {"a/x": "1"}}, "b.py": {}}')
    monkeypatch.setattr(figures, "KEPT", path)
    monkeypatch.delenv("OPSMITH_KEEP_FIGURES", raising=False)
    figures.keep("benchmarks/a.py", "new", {"a/x": "2"})
    assert '"old"' in path.read_text()
    monkeypatch.setenv("OPSMITH_KEEP_FIGURES", "1")
    figures.keep("benchmarks/a.py", "new", {"a/x": "2"})
    assert json.loads(path.read_text()) == {
        "a.py": {"machine": "new", "figures": {"a/x": "2"}},
        "b.py": {},
    }


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([2.9], "2.9 s"),
        ([16.2], "16 s"),
        ([0.0071], "7.1 ms"),
        ([0.0014, 0.0128, 0.0052], "1.4, 13, 5.2 ms"),
        ([0.46e-6], "0.46 µs"),
    ],
)
def test_times_have_the_unit_of_the_first_of_them(values, shown):
    assert figures.seconds(*values) == shown


def test_a_range_of_equal_numbers_is_one():
    assert figures.span(6.1, 19.4, 8) == "6.1–19"
    assert figures.span(12.2, 11.9) == "12"


class _Names(dict):
    """Rounds of whatever is asked for."""

    def __missing__(self, name):
        return [2e-6, 3e-6]


_ANY = Timings(_Names(unchecked=[1e-6, 2e-6]))


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("call_overhead", lambda: (dict.fromkeys("abcdef", _ANY), _ANY)),
        ("bev_pool_v2", lambda: ({(size, "x"): _ANY for size in "abcd"},)),
        ("deform_conv2d", lambda: ([_ANY] * 3, [_ANY] * 3)),
        ("run", lambda: (Counter(allclose=12),)),
    ],
)
def test_a_script_measures_every_figure_that_is_kept_of_it(script, arguments):
    paths = [ROOT / folder / f"{script}.py" for folder in ("benchmarks", "tests/faults")]
    source = next(path for path in paths if path.is_file()).read_text()
    body = re.search(r"^def shown\(.*?(?=^(?:def|if|class|@) )", source, re.DOTALL | re.MULTILINE)
    scope = {"figures": figures}
    exec("from __future__ import annotations\n" + body[0], scope)
    measured = scope["shown"](*arguments())
    assert set(measured) == set(SECTIONS[f"{script}.py"]["figures"])


@pytest.mark.parametrize("script", ["aotinductor", "build_time", "in_onnxruntime"])
def test_a_script_names_every_figure_that_is_kept_of_it(script):
    source = (ROOT / "benchmarks" / f"{script}.py").read_text()
    named = re.findall(r'^ +"([a-z]+/[\w-]+)": ', source, re.MULTILINE)
    assert sorted(named) == sorted(SECTIONS[f"{script}.py"]["figures"])


def test_the_pages_count_the_quick_checks():
    said = "fourteen"
    for page in (
        "docs/reference/checks.md",
        "docs/how-to/guide.md",
        "opsmith/cli/commands/check.py",
    ):
        assert said in (ROOT / page).read_text()
    assert len(QUICK) == 14, f"the pages say {said}"


@pytest.mark.slow
def test_what_is_counted_is_what_the_sources_say():
    assert figures.counted() == SECTIONS[figures.COUNTED]["figures"]
