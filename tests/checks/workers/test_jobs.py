"""Rows run side by side: the same rows, in the same order, each by a process of its own."""

import threading
import time

import faults_endings as endings
import pytest
from jaxtyping import Float
from torch import Tensor

import opsmith
from gallery.my_add.my_add import my_add
from opsmith import checks
from opsmith.checks.catalogue import targets
from opsmith.checks.report.rows import Row
from opsmith.checks.run_report import Report
from opsmith.checks.workers.worker_client import Worker

#: The last two need the first; then a helper takes the one that compiles.
SELECTED = ["reference", "determinism", "export"]


@pytest.fixture
def by_thread(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Which thread asked a worker for each check first."""
    found: dict[str, str] = {}

    original = Worker.run

    def run(self, check, *others, **more):
        found.setdefault(check.name, threading.current_thread().name)
        return original(self, check, *others, **more)

    monkeypatch.setattr(Worker, "run", run)
    return found


@pytest.mark.long
def test_rows_that_compile_run_beside_the_others_and_are_told_in_order(by_thread):
    told = []
    report = checks.run(
        endings.double,
        select=SELECTED,
        examples=2,
        jobs=2,
        on_row=lambda row: told.append(row.check),
    )
    assert [row.status for row in report.rows] == ["passed"] * len(report.rows)
    assert told == [row.check for row in report.rows]
    assert told == SELECTED
    assert by_thread["determinism"] == threading.main_thread().name
    assert by_thread["export"] != threading.main_thread().name


@pytest.mark.long  # test_worker.py::test_an_operator_in_no_file_is_checked_here
def test_what_no_other_process_can_declare_runs_in_the_first_thread(by_thread):
    threads = []

    @opsmith.op("jobs::here")
    def here(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        threads.append(threading.current_thread())
        return x * 2

    report = checks.run(here, select=SELECTED, examples=2, jobs=2)
    assert report.ok, report.explain()
    assert threading.main_thread() in threads
    # The other threads are those that a case itself starts.
    assert {by_thread["export"]}.isdisjoint(thread.name for thread in threads)
    assert by_thread["export"] != threading.main_thread().name, "a helper asked first"


@pytest.mark.slow
def test_the_rows_of_a_target_share_one_export_of_the_operator(monkeypatch):
    exported = []

    def export(operator, **options):
        exported.append(options["target"])
        return original(operator, **options)

    original = targets.export
    monkeypatch.setattr(targets, "export", export)
    report = checks.run(my_add, select=["jax", "jax-vmap"], examples=3, isolate=False)
    assert report.ok, report.explain()
    assert exported == ["jax"]


@pytest.mark.slow
def test_the_summary_says_how_long_the_run_took_and_not_the_sum_of_its_rows():
    rows = [Row("ns::op", "cpu", name, "passed", seconds=3.0) for name in ("one", "other")]
    assert Report(rows).summary() == "1 operator: 2 passed; 0 cases, 6 s"
    assert Report(rows, elapsed=4.0).summary() == "1 operator: 2 passed; 0 cases, 4 s"
    started = time.monotonic()
    report = checks.run(endings.double, select=["mutation", "aliasing"], examples=2, jobs=2)
    assert 0 < report.elapsed <= time.monotonic() - started
