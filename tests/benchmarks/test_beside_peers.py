"""The tables beside other checkers are what the kept results give, and no fault is left out."""

import sys
from pathlib import Path

import pytest

# At the end: a module `run` is here too.
sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "peers"))

import in_triton
import planted
import table


def test_the_page_shows_the_tables_of_what_is_kept():
    page = table.PAGE.read_text(encoding="utf-8")
    assert all(table.BEGINS.format(part) in page for part in table.TABLES)
    assert table.filled(page) == page


def test_there_is_a_line_for_each_planted_fault_and_each_right_kernel():
    kept = {(one["set"], one["fault"]): one for one in table.kept("cuda") if "fault" in one}
    there = [(one, fault) for one in planted.sets() for fault in one.group.faults]
    assert set(kept) == {(one.name, fault) for one, fault in there}
    for one, fault in there:
        line = kept[one.name, fault]
        asked = {"right"} if one.only_right else {"right", "wrong"}
        assert line["kind"] == one.kind_of(fault)
        assert set(line["opsmith"]) == set(line[table.SENTRYWARD]) == asked
    assert [one["fault"] for one in table.kept("triton")] == [*in_triton.FAULTS, *in_triton.RIGHT]
    exploits = [one for one in table.kept("judge") if one["kind"] != "control"]
    assert len({one["fault"] for one in exploits}) == len(exploits) == 22


@pytest.mark.parametrize(
    ("wrong", "right", "outcome"),
    [
        ("flags", "passes", "found"),
        ("flags", "flags", "flags both"),
        ("passes", "passes", "missed"),
        ("refuses", "passes", "refused"),
        ("undecided", "passes", "undecided"),
        ("not tried", "not tried", "not tried"),
    ],
)
def test_what_flags_the_right_twin_too_has_not_found_the_fault(wrong, right, outcome):
    assert table.outcome({"wrong": [wrong, "", 1], "right": [right, "", 1]}) == outcome


def test_a_refusal_that_names_the_fault_is_counted_as_such():
    named = ["refuses", "unsupported; invalid named barrier thread count", 1]
    assert table.outcome({"wrong": named, "right": ["passes", "", 1]}) == "named"
    assert table.outcome({"wrong": named, "right": named}) == "refused"
    assert table.counted(["found", "named", "found"]) == "2 found, 1 named in a refusal"
