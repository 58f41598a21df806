"""A kernel changes nothing but its own row, whatever it does to the process that it runs in."""

import cheating
import pytest

from opsmith import checks

# test_worker.py states most: kernels that end their process, close its files or invent answers.
pytestmark = pytest.mark.long

#: The first calls the kernel in the process of the check, where it has its way; then the others.
ROWS = ["dispatch", "reference", "layouts"]


def _run(select):
    return checks.run(cheating.CHEATS.values(), select=select, examples=8, time_limit=30.0)


@pytest.fixture(scope="module")
def report():
    return _run(ROWS)


@pytest.fixture(scope="module")
def alone():
    """The rows of each check that ran alone, so that no other one tells the cause."""
    return [row for check in ROWS[1:] for row in _run([check]).rows]


WRONG = [name for name in cheating.CHEATS if name != "right"]


@pytest.mark.parametrize("name", WRONG)
def test_a_kernel_that_changes_its_process_passes_nothing_that_it_did_not_before(report, name):
    rows = {row.check: row for row in report.rows if row.operator == f"cheating::{name}"}
    assert list(rows) == ROWS
    assert {rows[check].status for check in ROWS[1:]} <= {"failed", "not run"}
    assert "failed" in {row.status for row in rows.values()}


@pytest.mark.parametrize("name", WRONG)
def test_a_kernel_that_changes_its_process_is_wrong_as_before(alone, name):
    rows = {row.check: row for row in alone if row.operator == f"cheating::{name}"}
    assert list(rows) == ROWS[1:]
    for row in rows.values():
        assert row.status == "failed"
        assert row.case.startswith("x: float32 (")
    if name not in ENDS:
        assert rows["reference"].code.startswith("OPS-VALUE-"), rows["reference"].message


#: What is said of those that give no value.
ENDS = {
    "leaves_with_success": "ended the process with exit code 0",
    "leaves_by_exception": "raised SystemExit: 0",
    "closes_descriptors": "ended the process with exit code 1",
    "ends_its_parent": "the checking process is gone",
    "forges_answers": "the kernel's process gave an answer that cannot be read",
    "patches_clocks_and_collector": "",
}


@pytest.mark.parametrize("name", ENDS)
def test_how_a_kernel_ended_is_said(alone, name):
    (row,) = [
        row for row in alone if (row.operator, row.check) == (f"cheating::{name}", "reference")
    ]
    assert row.message.startswith(ENDS[name])
    assert len(row.message) < 5000


def test_the_right_kernel_after_all_of_them_passes(report):
    rows = [row for row in report.rows if row.operator == "cheating::right"]
    assert [(row.check, row.status) for row in rows] == [(name, "passed") for name in ROWS]
