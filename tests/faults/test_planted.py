"""A planted fault is found by the checks that are there for it, which its right twin passes.

`make faults` runs every check on every pair; this runs what must find it, so that the suite stays
short.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pairs import Pair
from run import APART, CHECKS, COMPILED, NARROW, finders, pairs

from opsmith import checks


def _chosen() -> list[Pair]:
    """Every fault, but of the kinds that take long, or a process of their own, the first."""
    everything = pairs()
    slow = (*APART, COMPILED, NARROW, "neighbours")
    first = {pair.kind: pair for pair in reversed(everything) if pair.kind in slow}
    return [pair for pair in everything if pair.kind not in slow or pair is first[pair.kind]]


@pytest.mark.slow(cases=6)
@pytest.mark.parametrize(
    ("pair", "check"),
    [pytest.param(p, c, id=f"{p.name}-{c}") for p in _chosen() for c in finders(p)],
)
def test_a_planted_fault_is_found_and_its_right_twin_passes(
    pair: Pair, check: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue("brief_shrinking" if pair.said else "no_shrinking")
    settings = {"select": [check], "examples": 20, "isolate": pair.kind in APART}
    wrong = checks.run(pair.wrong, time_limit=5.0, **settings)
    (found,) = (row for row in wrong.failures if row.check == check)
    text = found.explain()
    assert f"{pair.wrong.name}: check {check!r} failed" in text
    for words in pair.said.get(check, ()):
        assert words in text
    if pair.said:
        assert "smallest case: x: " in text
    assert f"--check {check} --seed 0" in text
    right = checks.run(pair.right, **settings)
    assert right.ok, right.explain()


@pytest.mark.parametrize("page", ["README.md", "README.zh.md", "docs/explanation/performance.md"])
def test_each_page_says_how_many_faults_in_python_there_are(page: str) -> None:
    # A figure stands between comments.
    text = re.sub(r"<!--.*?-->", "", (Path(__file__).parents[2] / page).read_text())
    told = re.findall(r"Of (\d+) planted faults|植入的 (\d+) 个错误", text)
    kernels = [pair.wrong.kernels.values() for pair in pairs()]
    count = sum(not any(one.source for one in several) for several in kernels)
    assert {int(first or second) for first, second in told} == {count}


def test_every_kind_of_fault_has_a_check_that_looks_for_it() -> None:
    everything = pairs()
    assert len(everything) >= 90
    assert {pair.kind for pair in everything if not pair.row} <= set(CHECKS)
