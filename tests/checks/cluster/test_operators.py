"""Operators in lanes: the report of one process, whatever ends, and no operator that differs."""

import importlib
import sys
from concurrent.futures import BrokenExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from fake_lane import FakeLane

from opsmith import checks
from opsmith.checks.cluster import operators as cluster
from opsmith.checks.cluster.lanes import Lanes, LocalLane
from opsmith.checks.report.rows import Row
from opsmith.checks.run_report import Report
from opsmith.errors import LoadError

DECLARATION = """
import opsmith
from jaxtyping import Float
from torch import Tensor

@opsmith.op("clustered::{name}")
def {name}(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2

@{name}.register_kernel("cpu")
def kernel(x: Tensor) -> Tensor:
    {body}
"""
RIGHT, WRONG = "return x * 2", "return x * 2.5"
ENDS = "import os; os._exit(3)"


@pytest.fixture
def declare(tmp_path, monkeypatch):
    """Declare operators in files, each with the kernel that is given."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "argv", list(sys.argv))

    def declared(**bodies: str):
        for name, body in bodies.items():
            Path(f"{name}.py").write_text(DECLARATION.format(name=name, body=body))
        return [getattr(importlib.import_module(name), name) for name in bodies]

    return declared


def told_by(report: Report) -> list[Row]:
    """Return all rows but for what differs from run to run: times, and errors while shrinking."""
    every = (*report.rows, *report.left_out)
    return [replace(row, seconds=0.0, samples=(), error=None) for row in every]


@pytest.mark.slow
def test_the_report_is_that_of_a_run_in_one_process(declare, monkeypatch):
    operators = declare(cl_right=RIGHT, cl_wrong=WRONG, cl_ends=ENDS)
    told = []
    options = {"select": ["reference"], "examples": 3, "seed": 5}
    monkeypatch.setattr(cluster, "lanes_of", lambda *_: nullcontext(Lanes(LocalLane, 2, 2)))
    found = cluster.run_on_ray(operators, "", say=print, on_row=told.append, **options)
    expected = checks.run(operators, **options)
    assert found.rows == told
    assert told_by(found) == told_by(expected)
    assert (found.outcome, found.seed, found.without_kernel) == ("failed", 5, [])
    failed = {row.operator.removeprefix("clustered::cl_") for row in found.failures}
    assert failed == {"wrong", "ends"}


@pytest.fixture
def looked(monkeypatch):
    """Check in lanes of this process, by a function that looks at the operator's name alone."""
    calls = []

    def look(operator, **options):
        calls.append(operator.name)
        if "kills" in operator.name or ("dies" in operator.name and calls.count(operator.name) < 2):
            raise BrokenExecutor("the machine is gone")
        row = Row(operator.name, "cpu", "reference", "passed", cases=options["examples"])
        return Report([row], left_out=[replace(row, check="mutation", status="not run")])

    FakeLane.opened = []
    monkeypatch.setattr(cluster, "run", look)
    monkeypatch.setattr(cluster, "lanes_of", lambda *_: nullcontext(Lanes(FakeLane, 2, 2)))
    monkeypatch.setattr(cluster, "keep_workers", lambda: None)
    return calls


def run(operators, **options):
    return cluster.run_on_ray(operators, "", examples=7, **options)


def test_each_operator_has_its_rows_once_and_in_order_where_processes_end(declare, looked):
    operators = declare(cl_kills=RIGHT, cl_a=RIGHT, cl_dies=RIGHT, cl_b=RIGHT)
    told, said, shown = [], [], []
    found = run(
        operators,
        say=said.append,
        on_row=lambda row: told.append(row.operator),
        progress=lambda *now: shown.append(now),
    )
    names = [f"clustered::cl_{name}" for name in ("kills", "a", "dies", "b")]
    assert list(dict.fromkeys(told)) == names
    assert found.rows[-1].cases == 7
    for name, times in zip(names, (3, 1, 2, 1), strict=True):
        assert looked.count(name) == times
    done = [row.operator for row in found.rows if row.status == "passed"]
    assert done == [name for name in names if "kills" not in name]
    assert len(found.left_out) == 3
    assert said == ["a process ended, and what it worked at begins again: the machine is gone"] * 3
    assert found.outcome == "incomplete"
    assert found.explain() == (
        "clustered::cl_kills: nothing was checked: its process ended 3 times: the machine is gone"
    )
    assert shown[-1][0] == shown[-1][1] > 0


@pytest.mark.parametrize(
    ("there", "said"), [("other", "differs from the one"), (None, "is missing, unlike the one")]
)
def test_a_machine_with_other_files_checks_nothing(declare, looked, monkeypatch, there, said):
    operators = declare(cl_same=RIGHT)
    file = Path("cl_same.py").resolve()
    monkeypatch.setattr(cluster, "files_of", lambda operators: [file])
    digests = iter(["here", there])
    monkeypatch.setattr(cluster, "digest", lambda path: next(digests, there))
    with pytest.raises(LoadError) as raised:
        run(operators, say=lambda message: None)
    assert f"checks nothing: {file} {said} of the machine that gives the command. Put " in str(
        raised.value
    )
    assert looked == []


def test_a_machine_without_the_device_checks_nothing(declare, looked):
    operators = declare(cl_device=RIGHT)
    with pytest.raises(LoadError, match="checks nothing: device 'npu': "):
        run(operators, say=lambda message: None, devices=("npu",))


def test_an_operator_that_is_declared_differently_there_is_not_checked(
    declare, looked, monkeypatch
):
    operators = declare(cl_other=RIGHT)
    here = replace(cluster.locate(operators[0]), fingerprint="other")
    monkeypatch.setattr(cluster, "locate", lambda operator: here)
    with pytest.raises(LoadError, match=r"checks nothing: .* declares clustered::cl_other diff"):
        run(operators, say=lambda message: None)
    assert looked == []


def test_ray_that_is_not_installed_is_named_with_its_extra(declare, cli, monkeypatch):
    declare(cl_alone=RIGHT)
    monkeypatch.setitem(sys.modules, "ray", None)
    done = cli("check", "cl_alone.py", "--ray", "local")
    assert done.code == 1
    assert done.stderr == "error: --ray needs the package ray: pip install 'opsmith[ray]'\n"


def test_what_watches_is_on_one_machine(cli):
    done = cli("check", "any.py", "--watch", "--ray", "local")
    assert done.code == 2
    assert "--watch checks on this machine alone" in done.stderr
