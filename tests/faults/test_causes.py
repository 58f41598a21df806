"""The first failure that is shown names the kind of each planted fault.

`make causes` asks what is told of each of them, keeps it in told/told.jsonl, and writes the table.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from causes import GOAL, KEPT, Fault, faults, keep, kept, on_the_page, run, share, table
from kinds import FAULTS, KINDS, Told
from run import pairs

#: Number of faults of each kind that are asked again, those that were told soonest.
_ASKED = 2


def _soonest() -> list[Told]:
    """Return some faults of each kind of which the first failure named it: first one of each."""
    of_kind = defaultdict(list)
    for one in sorted(kept(), key=lambda one: one.seconds):
        if one.names_its_kind:
            of_kind[one.kind].append(one)
    return [own[place] for place in range(_ASKED) for own in of_kind.values() if place < len(own)]


@pytest.mark.slow(cases=12)
@pytest.mark.parametrize("one", _soonest(), ids=lambda one: f"{one.kind}-{one.name}")
def test_the_first_failure_names_the_kind_of_a_fault(one: Told, tmp_path: Path) -> None:
    (fault,) = (fault for fault in faults([one.group]) if fault.name == one.name)
    (told,) = run([fault], tmp_path / "told.jsonl")
    assert told.names_its_kind, f"{told}; before: {one}"


def test_every_fault_has_a_kind_and_every_kind_a_kept_answer() -> None:
    planted = {one.key: one.kind for one in faults()}
    answers = {(one.group, one.name): one.kind for one in kept()}
    assert set(planted.values()) == set(KINDS)
    assert set(FAULTS) <= {name for _, name in planted}
    assert len(planted) > len(pairs())
    assert answers.items() <= planted.items(), "make causes brings them up to date"
    assert set(answers.values()) == set(KINDS)


def test_the_page_has_the_table_of_what_was_told_and_reaches_the_goal() -> None:
    several = kept()
    assert share(several) >= GOAL
    assert on_the_page() == table(several, len(faults())), "make causes writes it"


def test_a_run_that_was_stopped_goes_on_and_asks_nothing_twice(tmp_path: Path) -> None:
    asked: list[str] = []

    def fault(name: str) -> Fault:
        def ask() -> tuple[str, str, str]:
            asked.append(name)
            if name == "two" and len(asked) == 2:
                raise KeyboardInterrupt
            return "layouts", "OPS-LAYOUT-STRIDE", "wrong\nsome\nsizes: wrong where N is 2"

        return Fault("sizes", "layouts", name, ask)

    path, several = tmp_path / KEPT.name, [fault(name) for name in ("one", "two", "three")]
    with pytest.raises(KeyboardInterrupt):
        run(several, path)
    assert [one.name for one in kept(path)] == ["one"]
    told = run(several, path)
    assert asked == ["one", "two", "two", "three"]
    assert [one.message for one in told] == ["wrong\nsizes: wrong where N is 2"] * 3
    assert {one.name for one in kept(path)} == {"one", "two", "three"}
    run(several[:1], path, again=True)
    assert asked[4:] == ["one"]
    before = path.read_text()
    keep(kept(path), path)
    assert path.read_text() == before


def test_a_fault_beside_its_kind_is_counted_and_named() -> None:
    told = [
        Told("sizes", "layouts", "one", "OPS-LAYOUT-STRIDE"),
        Told("sizes", "layouts", "two", "OPS-VALUE-WRONG"),
        Told("native", "threads", "three", ""),
    ]
    assert [one.names_its_kind for one in told] == [True, False, False]
    text = table(told)
    assert "| layouts | 2 | LAYOUT-STRIDE 1, VALUE-WRONG 1 | 1 |" in text
    assert "1 of 3 first failures name the kind: 33.3%. The others:" in text
    assert text.endswith("- layouts, two: OPS-VALUE-WRONG\n- threads, three: nothing\n")
    assert table(told, 3) == text
    left = "\n2 of the 5 planted faults have not been asked about yet.\n"
    assert table(told, 5) == text + left


def test_a_rule_names_the_kind_that_it_is_about_and_no_other() -> None:
    def told(kind: str, rule: str) -> bool:
        return Told("sizes", kind, "one", "OPS-VALUE-WRONG", "", f"wrong\n{rule}").names_its_kind

    assert told("sizes", "sizes: wrong where N and C are equal (9 cases, and 58 others are right)")
    assert told("sizes", "sizes: raises where len(xs) > 4 (9 cases, and 58 others are right)")
    assert told("parameters", "sizes: wrong where flip is True (9 cases, and 58 others are right)")
    assert told("dtypes", "In float32 and float64, it is right.")
    assert not told("parameters", "sizes: wrong where N > 4 (9 cases, and 58 others are right)")
    assert not told("parameters", "sizes: wrong where len(xs) > 4 (9 cases, and 58 are right)")
    assert not told("sizes", "sizes: wrong where flip is True (9 cases, and 58 others are right)")
