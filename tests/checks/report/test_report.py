import io
import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import jsonschema
import pytest
from jaxtyping import Float
from reports import APART, FAILED, PASSED
from rich.console import Console
from torch import Tensor

import opsmith
from opsmith import CheckError, OpsmithError, checks, testing
from opsmith.checks.protocol import all_checks
from opsmith.checks.report.html import Cell
from opsmith.checks.report.json_junit import SCHEMA_FILE
from opsmith.checks.report.rows import Row, show_error
from opsmith.checks.run_report import Report
from opsmith.checks.runner import planned


@opsmith.op("report::half_right", autograd="reference")
def half_right(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2


@half_right.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    return x * 2.5


half_right.register_kernel("npu", lambda x: x * 2)


@pytest.fixture(scope="module")
def report() -> Report:
    select = ["reference", "aliasing", "parallel-dims"]
    return checks.run(half_right, select=select, isolate=False, examples=8)


def test_every_check_of_every_kernel_has_a_row(report):
    rows = [(row.kernel, row.check, row.status) for row in report.rows]
    assert rows == [
        ("cpu", "reference", "failed"),
        ("cpu", "aliasing", "passed"),
        ("cpu", "parallel-dims", "not run"),
        ("npu", "reference", "not applicable"),
        ("npu", "aliasing", "not applicable"),
        ("npu", "parallel-dims", "not applicable"),
    ]
    assert report.rows[3].message == "no npu device on this machine"
    assert report.rows[2].message == "not run because of reference"


@pytest.mark.parametrize("width", [80, 100])
def test_the_table_fits_the_terminal(report, width):
    text = io.StringIO()
    Console(file=text, width=width).print(report.table())
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert any(line.startswith("report::half_right  kernel: cpu") for line in lines)
    assert any(re.match(r"✗  reference +\d+ +\S+ +[\d.]+ s", line) for line in lines)
    assert any("repeat: opsmith check tests/checks/report/test_report.py" in line for line in lines)
    summary = "1 operator: 1 passed, 1 failed, 3 not applicable, 1 not run; 3 of "
    assert summary in " ".join(lines[-2:])


def test_the_json_has_every_row(report):
    said = json.loads(report.to_json())
    assert said["ok"] is False
    assert said["seed"] == 0
    assert [row["check"] for row in said["rows"]][:2] == ["reference", "aliasing"]
    assert said["rows"][0]["case"] == "x: float32 (1,) [1.637]"
    assert said["rows"][0]["code"] == "OPS-VALUE-WRONG"
    jsonschema.validate(said, json.loads(SCHEMA_FILE.read_text()))
    (cohort,) = {sample["cohort"] for sample in said["rows"][1]["samples"]}
    assert cohort == "normal"
    assert sum(sample["cases"] for sample in said["rows"][1]["samples"]) == said["rows"][1]["cases"]


def test_the_page_stands_alone(report, tmp_path):
    text = report.to_html(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == text
    assert "report::half_right" in text
    assert "<code>x: float32 (1,) [1.637]</code>" in text
    assert "OPS-VALUE-WRONG" in text


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (None, ""),
        (0.0, "0"),
        (2.3e-187, "<.001"),
        (0.0085, "0.009"),
        (0.0854, "0.085"),
        (12.34, "12"),
        (float("inf"), ">999"),
    ],
)
def test_an_error_is_shown_in_five_places(error, shown):
    assert show_error(error) == shown


def test_one_fault_is_not_told_fifteen_times():
    failures = [Row("a::b", "cpu", name, "failed", message="wrong") for name in "vwxyz"]
    text = io.StringIO()
    Console(file=text, width=100).print(Report(failures).table())
    assert text.getvalue().count("failed for the 'cpu' kernel") == 3
    assert "a::b: y, z failed too, perhaps for the same reason." in text.getvalue()
    assert Report(failures).explain().count("failed for the 'cpu' kernel") == 5


def test_failures_are_raised_in_full(report):
    with pytest.raises(CheckError) as raised:
        report.raise_failures()
    assert "report::half_right: check 'reference' failed for the 'cpu' kernel." in str(raised.value)
    assert "the result[0] is 4.09" in str(raised.value)


def test_nothing_checked_is_not_all_well():
    assert not checks.run([]).ok
    with pytest.raises(CheckError, match="nothing was checked: there is no operator"):
        checks.run([]).raise_failures()


def test_a_check_that_is_about_no_kernel_of_an_operator_says_so():
    report = checks.run(half_right, select=["narrow-index"], isolate=False)
    assert report.outcome == "incomplete"
    said = "nothing was checked: what was asked for is about no kernel of report::half_right"
    assert report.explain() == said
    assert report.summary().startswith("0 operators: nothing ran; 0 of ")


ABSENT = replace(APART, operator="a::far", kernel="npu", message="no npu device on this machine")


def test_an_operator_of_which_nothing_was_checked_is_green_nowhere():
    built = replace(PASSED, operator="a::far", kernel="npu", check="build", cases=0)
    near = replace(PASSED, operator="a::near", check="reference")
    compiled = replace(built, check="nvcc")  # for a device that is absent
    absent = [replace(ABSENT, check=name) for name in ("reference", "fake")]
    report = Report([near, built, compiled, *absent])
    assert (report.outcome, report.ok) == ("incomplete", False)
    reason = "nothing was checked: no npu device on this machine"
    with pytest.raises(CheckError, match=f"^a::far: {reason}$"):
        report.raise_failures()
    text = io.StringIO()
    Console(file=text, width=80).print(report.table())
    assert f"a::far: {reason}" in text.getvalue().splitlines()
    page = report.to_html()
    assert "<title>! opsmith: " in page
    assert f'<p class="incomplete">a::far: {reason}</p>' in page
    assert json.loads(report.to_json())["outcome"] == "incomplete"
    root = ElementTree.fromstring(report.to_junit())
    assert (root.get("errors"), root.get("failures")) == ("1", "0")
    (error,) = root.findall(".//error")
    assert error.get("message") == reason


def test_a_kernel_that_is_absent_beside_one_that_passed_leaves_the_operator_checked():
    near = replace(PASSED, operator="a::far", check="reference")
    assert Report([near, replace(ABSENT, check="reference")]).ok
    assert Report([replace(near, check="build", cases=0)]).ok  # no more was asked for


def test_what_was_not_asked_for_is_counted_and_looks_green_nowhere(report):
    names = {check.name for _, check in planned([half_right], None)}
    assert {row.check for row in report.left_out} == names - {
        "reference",
        "aliasing",
        "parallel-dims",
    }
    assert {row.status for row in report.left_out} == {"not run"}
    assert f"; 3 of {len(names)} checks, " in report.summary()
    listed = json.loads(report.to_json())["left_out"]
    assert {"operator": half_right.name, "kernel": "cpu", "check": "compile"} in listed
    suite = ElementTree.fromstring(report.to_junit()).find(
        "testsuite[@name='report::half_right (cpu)']"
    )
    assert len(suite.findall("testcase")) == len(names)
    assert suite.find("testcase[@name='compile']/skipped").get("message") == "not asked for"
    missing = len(names) - 3
    assert next(report.remarks()).startswith(f"{missing} checks were not asked for. ")
    page = report.to_html()
    assert next(report.remarks()).splitlines()[0] in page
    assert 'aria-label="report::half_right, eager: 1 of' in page
    column = re.findall(
        r'<button type="button" class="([\w-]+)" data-runtime="torch.compile"', page
    )
    assert set(column) == {"not-run"}


def test_a_cell_is_green_only_where_all_of_its_checks_ran():
    rows = [replace(PASSED, check="compile"), replace(APART, check="dynamic")]
    assert Cell.of("torch.compile", rows).status == "passed"
    cell = Cell.of("torch.compile", [*rows, Row("", "cpu", "other", "not run")])
    assert (cell.status, cell.mark, cell.shown) == ("passed in part", "◐", "1 of 3")
    assert cell.describe() == "torch.compile: 1 of 3 passed, others did not run"
    assert Cell.of("torch.compile", [rows[0], FAILED]).status == "failed"


def test_an_unknown_check_is_named_with_all_there_are():
    with pytest.raises(OpsmithError, match=r"no check 'speed'; there are build, dispatch, bounds"):
        checks.run(half_right, select=["speed"])


def test_every_check_says_what_must_hold():
    names = [check.name for check in all_checks()]
    assert len(names) == len(set(names))
    for check in all_checks():
        assert check.summary
        assert not check.summary.endswith(".")


def test_progress_is_told_before_each_row_and_at_the_end():
    said = []
    checks.run(
        half_right,
        select=["aliasing"],
        isolate=False,
        examples=1,
        progress=lambda done, total, what: said.append((done, total, what)),
    )
    assert said == [
        (0, 2, "report::half_right cpu aliasing"),
        (1, 2, "report::half_right npu aliasing"),
        (2, 2, ""),
    ]


@testing.parametrize(half_right, select=["aliasing", "mutation"])
def test_parametrize_makes_one_test_for_each_check(check, request):
    assert request.node.name.endswith(("[report::half_right-aliasing]", "-mutation]"))
    assert check().ok


def test_a_check_of_ones_own(monkeypatch):
    from opsmith.checks import protocol

    monkeypatch.setattr(protocol, "_CHECKS", dict(protocol._CHECKS))

    @checks.define_check("positive", "results are positive")
    def positive(trial):
        def one(case):
            if (trial.run(case.make())[0] < 0).any():
                raise checks.Failure("a result is negative")

        trial.each(one)

    found = checks.run(half_right, select=["positive"], isolate=False)
    assert found.rows[0].message == "a result is negative"


def test_the_columns_of_forty_operators_begin_below_each_other_in_80_columns():
    checks_of_one = ["reference", "sanitize-undefined", "onnx-standard-torchscript", "fake"]
    rows = [
        Row(f"many::operator_{n}", "cpu", name, "passed", cases=7, error=0.25, seconds=1.0)
        for n in range(40)
        for name in checks_of_one
    ]
    text = io.StringIO()
    Console(file=text, width=80).print(Report(rows).table())
    lines = text.getvalue().splitlines()
    shown = [line for line in lines if line.startswith("✓")]
    assert len(shown) == 160
    assert max(map(len, lines)) <= 80
    assert len({line.index("0.25") for line in shown}) == 1
    assert sum("kernel: cpu" in line for line in lines) == 40
