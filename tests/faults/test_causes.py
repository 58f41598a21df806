"""The first failure that is shown names the kind of each planted fault.

`make causes` runs all of them, and writes the table.
"""

from __future__ import annotations

import re

import pytest
from causes import BEGIN, END, FAULTS, GOAL, GROUPS, KINDS, PAGE, Told, share, table
from run import pairs

#: Few groups take seconds.
_ORDER = ["dispatch", *(name for name in GROUPS if name not in ("dispatch", "neighbours"))]


@pytest.mark.slow(cases=2)  # the first and the last; the others are `long`
@pytest.mark.parametrize("group", [*_ORDER, "neighbours"])
def test_the_first_failure_names_the_kind_of_a_fault(group: str) -> None:
    told = GROUPS[group]()
    assert told
    beside = [(one.name, one.check, one.code) for one in told if not one.names_its_kind]
    assert share(told) >= min(GOAL, 1 - 1 / len(told)), beside


def test_every_fault_has_codes_that_name_its_kind() -> None:
    names = {pair.name for pair in pairs()}
    assert {pair.kind for pair in pairs()} <= set(KINDS)
    assert set(FAULTS) <= names


def test_the_page_says_what_is_measured_and_reaches_the_goal() -> None:
    text = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    named, count = map(int, re.findall(r"(\d+) of (\d+) first failures name the kind", text)[0])
    assert named / count >= GOAL
    assert count >= len(pairs())


def test_a_fault_beside_its_kind_is_counted_and_named() -> None:
    told = [Told("layouts", "one", "OPS-LAYOUT-STRIDE"), Told("layouts", "two", "OPS-VALUE-WRONG")]
    told += [Told("threads", "three", "")]
    assert [one.names_its_kind for one in told] == [True, False, False]
    text = table(told)
    assert "| layouts | 2 | LAYOUT-STRIDE 1, VALUE-WRONG 1 | 1 |" in text
    assert "1 of 3 first failures name the kind: 33.3%. The others:" in text
    assert text.endswith("- layouts, two: OPS-VALUE-WRONG\n- threads, three: nothing\n")
