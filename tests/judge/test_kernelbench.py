"""Kernels of KernelBench's tasks: right ones are accepted, and wrong ones of every kind refused."""

import importlib
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "kernelbench"


@pytest.fixture(scope="module")
def run():
    sys.path.insert(0, str(BENCHMARK))
    try:
        yield importlib.import_module("kernelbench")
    finally:
        sys.path.remove(str(BENCHMARK))
        sys.modules.pop("kernelbench", None)


def test_there_are_enough_tasks_each_of_its_own_number(run):
    numbers = [number for family in run.FAMILIES for number in run.tasks(family).values()]
    assert len(numbers) >= 60
    assert len(set(numbers)) == len(numbers)
    assert all(1 <= number <= 100 for number in numbers)


def test_the_page_says_how_many_there_are(run):
    count = sum(len(run.tasks(family)) for family in run.FAMILIES)
    assert f"{count} tasks" in (BENCHMARK.parent / "README.md").read_text()
    assert f"{len(run.WRONG)} kinds" in (BENCHMARK.parent / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("no_shrinking")
@pytest.mark.parametrize("kind", ["own", "zeros"])
def test_wrong_kernels_are_refused(run, kind):
    names = ["hardtanh", "softmax"]
    outcomes = {one.task: one.outcome for one in run.judged("activations", names, kind, 5, 0)}
    assert outcomes == dict.fromkeys(names, "reference")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["right", "cached", "imprecise", "in place", "padded"])
def test_every_kind_comes_to_what_it_should(run, kind):
    names = ["hardtanh", "argmax"]
    for family, name in zip(("activations", "reductions"), names, strict=True):
        (one,) = run.judged(family, [name], kind, 5, 0)
        assert (one.outcome == "accepted") == (kind == "right"), one.message
