"""Which row is run next, where several are run side by side."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from opsmith.checks.protocol import Check
from opsmith.checks.report.rows import Row
from opsmith.checks.workers.schedule import Schedule


def planned(name: str, *, runtime: str = "eager", kernel: str = "cpu", module: str = "ops") -> Any:
    operator = SimpleNamespace(name="ns::op", reference=SimpleNamespace(__module__=module))
    subject = SimpleNamespace(operator=operator, kernel=kernel)
    limit = 1.0 if runtime == "eager" else 5.0
    return subject, Check(name, "", lambda trial: None, time_limit=limit, runtime=runtime)


def row(name: str) -> Row:
    return Row("ns::op", "cpu", name, "passed")


PLAN = [
    planned("build"),
    planned("reference"),
    planned("layouts"),
    planned("onnx", runtime="ONNX"),
    planned("jax", runtime="JAX"),
    planned("jax-vmap", runtime="JAX"),
]


def built() -> Schedule:
    schedule = Schedule(PLAN)
    assert schedule.take() == 0
    schedule.give(0, row("build"))
    return schedule


def test_nothing_of_a_kernel_runs_before_it_is_built():
    schedule = Schedule([*PLAN, planned("build", kernel="cuda")])
    assert schedule.take() == 0
    taken: list[int | None] = []
    helper = threading.Thread(target=lambda: taken.append(schedule.take("")))
    assert schedule.take("") == 6, "another kernel's build need not wait"
    helper.start()
    helper.join(0.2)
    assert taken == []
    schedule.give(0, row("build"))
    helper.join()
    assert taken == [5]


def test_the_first_runner_begins_with_what_is_quick_and_helpers_with_what_compiles():
    schedule = built()
    assert schedule.take() == 1
    assert schedule.take("") == 5, "the last runtime: so they meet in the middle"
    assert schedule.take() == 2
    assert schedule.take() == 3


def test_helpers_begin_with_what_finds_most():
    plan = [PLAN[0], planned("bounds", runtime="kernel alone"), *PLAN[1:]]
    schedule = Schedule(plan)
    assert schedule.take() == 0
    schedule.give(0, row("build"))
    assert schedule.take("") == 1, "without it, no failure of reference is told"
    assert schedule.take("") == 6


def test_a_helper_stays_with_its_runtime_and_leaves_those_of_others():
    schedule = built()
    assert schedule.take("") == 5
    schedule.give(5, row("jax-vmap"))
    assert schedule.take("JAX") == 4
    schedule.give(4, row("jax"))
    assert schedule.take("JAX") == 3
    schedule = built()
    assert schedule.take("") == 5
    assert schedule.take("") == 3, "not the runtime that another helper is busy with"


def test_rows_that_wait_for_one_export_run_side_by_side_only_where_nothing_else_is_left():
    elsewhere = planned("jax", runtime="JAX", kernel="other", module="others")
    schedule = Schedule([PLAN[4], PLAN[5], elsewhere])
    assert schedule.take("") == 1
    assert schedule.take() == 2, "of a module of its own"
    assert schedule.take() == 0
    schedule = Schedule([PLAN[4], PLAN[5], elsewhere])
    assert schedule.take() == 0
    assert schedule.take("JAX") == 2


def test_there_are_as_many_helpers_as_rows_compile_beside_another_one():
    assert Schedule(PLAN).helpers() == 3
    assert Schedule(PLAN[:2]).helpers() == 0
    assert Schedule([PLAN[0], PLAN[3]]).helpers() == 0, "it waits for the kernel"
    assert Schedule([PLAN[0], PLAN[3], PLAN[4]]).helpers() == 1


def test_helpers_take_one_kernel_after_the_other():
    schedule = Schedule([*PLAN[1:], *(planned(f"{k}", runtime=k, kernel="cuda") for k in "ab")])
    taken = []
    for _ in range(5):
        position = schedule.take("")
        assert position is not None
        taken.append(position)
        schedule.give(position, row("any"))
    assert taken == [4, 3, 2, 6, 5]


def test_a_helper_runs_what_is_quick_where_nothing_else_is_left():
    schedule = built()
    assert [schedule.take("") for _ in range(5)] == [5, 3, 4, 2, 1]
    assert schedule.take("") is None


def test_rows_are_told_in_the_order_of_the_plan():
    told: list[str] = []
    schedule = Schedule(PLAN[:3], on_row=lambda one: told.append(one.check))
    assert schedule.take() == 0
    schedule.give(0, row("build"))
    assert (schedule.take(), schedule.take()) == (1, 2)
    schedule.give(2, row("layouts"))
    assert told == ["build"]
    schedule.give(1, row("reference"))
    assert told == ["build", "reference", "layouts"]
    assert [one.check for one in schedule.rows()] == told


def test_a_row_that_was_ended_with_all_others_is_not_told_as_one_that_was_lost():
    told: list[str] = []
    schedule = Schedule(PLAN, on_row=lambda one: told.append(one.check))
    position = schedule.take("")
    assert position == 0
    schedule.end()
    schedule.give(position, row("build"))
    assert not told
    assert not schedule.rows()


def test_what_a_helper_cannot_run_comes_back_to_the_first_runner():
    schedule = built()
    assert schedule.take("ONNX") == 3
    for position in (1, 2, 4, 5):
        assert schedule.take() == position
        schedule.give(position, row(PLAN[position][1].name))
    waiting: list[int | None] = []
    first = threading.Thread(target=lambda: waiting.append(schedule.take()))
    first.start()
    schedule.give_back(3)
    first.join()
    assert waiting == [3]
    assert schedule.take("") is None
    schedule.give(3, row("onnx"))
    assert schedule.take() is None


def test_what_goes_wrong_in_a_helper_is_raised_to_the_first_runner():
    schedule = built()
    schedule.end(RuntimeError("it broke"))
    assert schedule.take("") is None
    with pytest.raises(RuntimeError, match="it broke"):
        schedule.take()


def test_progress_names_all_that_is_running():
    told: list[tuple[int, int, str]] = []
    schedule = Schedule(PLAN, progress=lambda *one: told.append(one))
    schedule.take()
    schedule.give(0, row("build"))
    schedule.take()
    schedule.take("ONNX")
    schedule.give(1, row("reference"))
    assert told == [
        (0, 6, "ns::op cpu build"),
        (1, 6, "ns::op cpu reference"),
        (1, 6, "ns::op cpu reference, onnx"),
        (2, 6, "ns::op cpu onnx"),
    ]


def test_what_a_row_makes_of_others_does_not_depend_on_which_was_there_first():
    told = []
    once: set[str] = set()

    def settle(position: int, found: Row) -> Row:
        first = not once
        once.add("said")
        return found if first else row("not run")

    schedule = Schedule(PLAN[1:3], on_row=lambda one: told.append(one.check), settle=settle)
    assert (schedule.take(), schedule.take()) == (0, 1)
    schedule.give(1, row("layouts"))
    assert told == []
    schedule.give(0, row("reference"))
    assert told == [one.check for one in schedule.rows()] == ["reference", "not run"]
