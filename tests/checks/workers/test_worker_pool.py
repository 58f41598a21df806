"""A worker is kept from one run to the next, and nothing of what ran in it."""

import itertools
import os

import cheating
import faults_endings as endings
import pytest

from opsmith import checks
from opsmith.checks.workers import worker_pool
from opsmith.checks.workers.worker_client import Worker
from opsmith.sources.importing import import_operators
from opsmith.system.processes.launch import surroundings

LEAVES = """
import os
import tempfile
from pathlib import Path

import opsmith
from jaxtyping import Float32
from torch import Tensor

FOUND = os.listdir(tempfile.gettempdir())

@opsmith.op("spare::leaves")
def leaves(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2

@leaves.register_kernel("cpu")
def _(x):
    if os.getcwd() != WORK:
        return x * 4
    Path(tempfile.gettempdir(), "left").touch()
    Path(tempfile.gettempdir(), "tmp").mkdir(exist_ok=True)
    return x * (2 if not FOUND else 3)
"""


@pytest.fixture
def supervisors(monkeypatch):
    """Those that ran a check; there is none yet that could be kept."""
    monkeypatch.setattr(worker_pool, "_keeps", True)
    monkeypatch.setattr(worker_pool, "_kept", None)
    found = []
    original = Worker.run

    def recorded(self, *others, **more):
        row = original(self, *others, **more)
        found.append(self._process and self._process.pid)
        return row

    monkeypatch.setattr(Worker, "run", recorded)
    yield found
    worker_pool._end()


def run(operator, check="mutation"):
    (row,) = checks.run(operator, select=[check], examples=4, time_limit=5.0).rows
    return row.status, row.code


@pytest.mark.slow
def test_the_next_run_has_the_worker_of_the_last_even_after_a_crash_and_finds_nothing_of_it(
    supervisors, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "leaves_files.py").write_text(LEAVES.replace("WORK", repr(str(work))))
    (operator,) = import_operators("leaves_files.py").operators
    assert run(endings.segfault) == run(endings.segfault) == ("failed", "OPS-CALL-CRASH")
    monkeypatch.syspath_prepend(work)
    monkeypatch.chdir(work)
    assert [run(operator, "reference"), run(operator, "reference")] == [("passed", "")] * 2
    assert len(set(supervisors)) == 1


@pytest.mark.slow
def test_a_worker_that_a_kernel_ended_is_not_kept(supervisors):
    run(endings.double)
    run(cheating.CHEATS["ends_its_parent"])
    assert run(endings.double) == ("passed", "")


@pytest.mark.long  # test_surroundings_are_variables_...
def test_another_is_started_where_a_new_one_would_find_other_surroundings(
    supervisors, tmp_path, monkeypatch
):
    run(endings.double)
    monkeypatch.setenv("OPSMITH_CACHE", str(tmp_path))
    run(endings.double)
    assert len(set(supervisors)) == 2


def test_surroundings_are_variables_and_where_packages_are_installed(tmp_path, monkeypatch):
    seen = [surroundings()]
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "another")
    monkeypatch.syspath_prepend(tmp_path)  # each request says so
    assert surroundings() == seen[0]
    monkeypatch.setenv("OPSMITH_CACHE", str(tmp_path))
    seen.append(surroundings())
    (tmp_path / "plugin-1.0.dist-info").mkdir()
    seen.append(surroundings())
    assert all(one != other for one, other in itertools.combinations(seen, 2))


@pytest.mark.slow
def test_a_fork_does_not_take_what_its_parent_keeps(supervisors):
    run(endings.double)
    child = os.fork()
    if child == 0:
        os._exit(int(worker_pool._taken() is not None))
    assert os.waitpid(child, 0)[1] == 0
    run(endings.double)
    assert len(set(supervisors)) == 1
