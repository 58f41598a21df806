"""A check that ran out of time has not passed on a handful of cases, and every report says so."""

import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import faults_endings as endings
import pytest
import torch
from jaxtyping import Float
from reports import PASSED
from rich.console import Console
from torch import Tensor

import opsmith
from opsmith import CheckError, checks, testing
from opsmith.checks.cases.subject import subjects_of
from opsmith.checks.run_report import Report
from opsmith.checks.trial.trial import Trial
from opsmith.checks.workers import worker_client
from opsmith.judge import judge
from opsmith.sources.importing import import_operators

SPEC = Path(__file__).parents[1] / "judge" / "spec.py"


@opsmith.op("cut_short::twice")
def twice(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2


@opsmith.op("cut_short::thrice")
def thrice(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 3


@thrice.register_cases
def _(dtype, seed):
    for size in range(20):
        yield {"x": torch.ones(size, dtype=dtype)}


def run(operator, **options) -> Report:
    """Run two checks without any time, so that what is cut short does not depend on the machine."""
    return checks.run(
        operator, select=["mutation", "aliasing"], isolate=False, seconds=0, **options
    )


def test_a_check_passes_with_none_of_its_samples_left_out_and_with_no_fewer():
    trial = Trial(subjects_of(twice)[0], "aliasing")
    trial.counts.due.samples = 100
    trial.counts.ran = 99
    assert trial.passed() == ("passed", "")  # the reference refused one
    trial.counts.due.run_out()
    # A kernel that sleeps chooses which sample is left out.
    assert trial.passed() == (
        "cut short",
        "stopped after 60 s, with 99 cases; 100 samples were due",
    )


def test_a_check_that_had_no_time_is_cut_short_and_the_run_incomplete():
    report = run(twice)
    assert {row.status for row in report.rows} == {"cut short"}
    assert report.outcome == "incomplete"
    aliasing = next(row for row in report.rows if row.check == "aliasing")
    dtypes = len(checks_dtypes := {sample.dtype for sample in aliasing.samples})
    assert {"float32", "float64", "float16", "bfloat16"} <= checks_dtypes  # one case in each
    assert aliasing.message == (
        f"stopped after 0 s, with {dtypes} cases; {4 * (30 // 4 + 1)} samples were due"
    )
    with pytest.raises(CheckError) as raised:
        report.raise_failures()
    assert str(raised.value) == (
        "cut_short::twice: of the 'reference' kernel, mutation, aliasing could not try "
        "enough: give more (--seconds), or take that for passed (--allow-cut-short)"
    )


def test_what_is_cut_short_is_taken_for_passed_by_who_says_so():
    report = run(twice, allow_cut_short=True)
    assert {row.status for row in report.rows} == {"cut short"}
    assert report.ok
    assert testing.check(twice, select=["aliasing"], seconds=0, allow_cut_short=True).ok
    with pytest.raises(CheckError, match="aliasing could not try enough"):
        testing.check(twice, select=["aliasing"], seconds=0)


def test_registered_cases_run_however_little_time_there_is_and_replace_no_samples():
    report = run(thrice)
    assert {row.status for row in report.rows} == {"cut short"}
    assert all(row.cases >= 20 for row in report.rows)
    assert all(row.message.startswith("stopped after 0 s, with ") for row in report.rows)


def test_what_is_cut_short_is_green_in_no_report():
    row = replace(
        PASSED, operator="a::b", check="reference", status="cut short", message="stopped after 2 s"
    )
    report = Report([replace(PASSED, operator="a::b", check="build"), row])
    text = io.StringIO()
    Console(file=text, width=80).print(report.table())
    assert any(line.startswith("!  reference") for line in text.getvalue().splitlines())
    assert "1 passed, 1 cut short" in report.summary()
    (error,) = ElementTree.fromstring(report.to_junit()).findall(".//error")
    assert (error.get("type"), error.get("message")) == ("cut short", "stopped after 2 s")
    page = report.to_html()
    assert "<title>! opsmith: " in page
    assert 'class="cut-short" data-runtime="eager"' in page
    allowed = ElementTree.fromstring(replace(report, allow_cut_short=True).to_junit())
    assert (allowed.get("errors"), allowed.get("skipped")) == ("0", "1")


@pytest.mark.slow
def test_the_command_has_an_exit_code_for_it_and_an_option_that_allows_it(
    cli, tmp_path, monkeypatch
):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    file = tmp_path / "cut_short_file.py"
    file.write_text(
        "import opsmith\nfrom jaxtyping import Float\nfrom torch import Tensor\n"
        "@opsmith.op('cut_short::from_file')\n"
        "def from_file(x: Float[Tensor, 'N']) -> Float[Tensor, 'N']:\n    return x * 2\n"
    )
    asked = ("check", file, "--check", "aliasing", "--seconds", 0)
    outcome = cli(*asked)
    assert outcome.code == 5
    assert "could not try enough" in outcome.stdout.replace("\n", " ")
    allowed = cli(*asked, "--allow-cut-short", "--json")
    assert allowed.code == 0
    said = json.loads(allowed.stdout)
    assert (said["outcome"], said["ok"]) == ("passed", True)
    assert [row["status"] for row in said["rows"]][-1] == "cut short"


@pytest.mark.slow
def test_a_candidate_that_leaves_no_time_for_cases_is_not_accepted(tmp_path):
    candidate = tmp_path / "kernels.py"
    candidate.write_text(
        "from spec import scale\n@scale.register_kernel('cpu')\ndef kernel(x, factor):\n"
        "    return scale.reference(x, factor)\n"
    )
    verdict = judge(SPEC, candidate, seconds=0, examples=60)
    assert not verdict.accepted
    assert not verdict.report.failures, verdict.report.explain()
    assert verdict.report.outcome == "incomplete"


def test_in_pytest_what_is_cut_short_fails_unless_an_option_allows_it(pytester):
    file = pytester.makepyfile(
        test_cut_short_suite="import opsmith, opsmith.testing\n"
        "from jaxtyping import Float\nfrom torch import Tensor\n"
        "@opsmith.op('cut_short::in_pytest')\n"
        "def op(x: Float[Tensor, 'N']) -> Float[Tensor, 'N']:\n    return x * 2\n"
        "test_op = opsmith.testing.suite(op, select=['aliasing'], seconds=0)\n"
    )
    asked = [] if "pytest_opsmith" in sys.modules else ["-p", "pytest_opsmith"]
    result = pytester.runpytest_inprocess(*asked, file)
    result.assert_outcomes(failed=1)
    assert "check 'aliasing' was cut short for the 'reference' kernel." in result.stdout.str()
    allowed = pytester.runpytest_inprocess(*asked, "--opsmith-allow-cut-short", file)
    allowed.assert_outcomes(passed=1)


NEVER_READY = """
import time

import opsmith
from jaxtyping import Float32
from torch import Tensor

@opsmith.op("cut_short::never_ready")
def never_ready(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2

@never_ready.register_kernel("cpu")
def _(x):
    return x + x

@never_ready.register_cases
def _(dtype, seed):
    time.sleep(600)
    yield {}
"""


@pytest.mark.slow
def test_of_a_kernel_that_no_case_reached_no_row_says_that_it_hangs(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_client, "_IMPORT_SECONDS", 12.0)
    (tmp_path / "never_ready.py").write_text(NEVER_READY)
    operators = import_operators(str(tmp_path / "never_ready.py")).operators
    (row,) = checks.run(operators, select=["reference"], time_limit=1.0).rows
    assert (row.status, row.cases) == ("cut short", 0)
    said = "the reference, or a function of register_cases, did not return within 12 s"
    assert row.message == f"{said}, before the first case"


def test_a_reference_that_hangs_flags_no_kernel(monkeypatch):
    monkeypatch.setattr(worker_client, "_SLACK_SECONDS", 1.0)
    (row,) = checks.run(endings.sleeping_reference, select=["reference"], time_limit=1.0).rows
    assert row.message == "the reference did not return within 2 s"
    assert (row.status, row.where, row.code) == ("cut short", "", "OPS-CALL-HANG")
