import crashing
import pytest
from jaxtyping import Float32
from torch import Tensor

import opsmith
from opsmith import checks, testing


@pytest.mark.parametrize(
    ("operator", "words"),
    [
        (crashing.segfault, "crashed with signal 11 (SIGSEGV)"),
        (crashing.abort, "crashed with signal 6 (SIGABRT)"),
        (crashing.leave, "ended the process with exit code 7"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_crash_is_a_failed_check_with_the_smallest_case(operator, words):
    report = checks.run(operator, select=["reference", "aliasing"])
    assert [row.check for row in report.rows] == ["reference", "aliasing"]
    for row in report.failures:
        assert words in row.message
    text = report.rows[0].explain()
    assert "smallest case: x: float32 (4,) [" in text
    assert "repeat: opsmith check tests/checks/crashing.py --check reference --seed 0" in text


def test_what_the_process_said_last_is_shown():
    report = checks.run(crashing.segfault, select=["reference"])
    assert "it said:\n    about to read address 0" in report.explain()


def test_a_hang_is_a_failed_check_and_the_next_one_runs():
    report = checks.run(crashing.hang, select=["dispatch", "reference", "build"], time_limit=1.0)
    assert [row.status for row in report.rows] == ["failed", "failed"]
    assert report.rows[0].message == "did not return within 1 s"
    assert report.rows[0].case.startswith("x: float32 (")


def test_an_operator_in_no_file_is_checked_here():
    @opsmith.op("crashing::local")
    def local(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        return x * 2

    ran = []

    @local.register_kernel("cpu")
    def _(x: Tensor) -> Tensor:
        ran.append(x)
        return x * 2

    assert checks.run(local, select=["reference"]).ok
    assert ran


def test_the_same_seed_gives_the_same_cases_in_any_process():
    def failing(isolate: bool, seed: int) -> str:
        report = checks.run(crashing.odd, select=["reference"], isolate=isolate, seed=seed)
        return report.rows[0].case

    first = failing(True, 1)
    assert first
    assert first == failing(True, 1)
    assert first == failing(False, 1)
    assert [len(case["x"]) for case in testing.cases(crashing.odd, seed=1)] != [
        len(case["x"]) for case in testing.cases(crashing.odd, seed=2)
    ]
