"""What programs read: JSON that keeps to its schema, and JUnit's XML."""

import json
import math
from dataclasses import fields, replace
from xml.etree import ElementTree

import jsonschema
import pytest
from reports import FAILED, FAULTS, report_of

from opsmith.checks.report.json_junit import SCHEMA, SCHEMA_FILE, plain
from opsmith.checks.report.rows import Row, Sample
from opsmith.checks.run_report import Report

DOCUMENT = json.loads(SCHEMA_FILE.read_text())


def valid(text: str) -> dict:
    said = json.loads(text)
    jsonschema.Draft202012Validator(DOCUMENT).validate(said)
    return said


def test_the_schema_is_one_and_names_its_version():
    jsonschema.Draft202012Validator.check_schema(DOCUMENT)
    assert DOCUMENT["$id"] == DOCUMENT["properties"]["schema"]["const"] == SCHEMA
    assert SCHEMA_FILE.name == "report-1.json"


def test_the_schema_describes_every_field():
    for kind, name in ((Row, "row"), (Sample, "sample")):
        described = DOCUMENT["$defs"][name]
        assert set(described["properties"]) == {field.name for field in fields(kind)}
        assert set(described["required"]) == set(described["properties"])
        assert all(
            "description" in one for one in described["properties"].values() if "$ref" not in one
        )


@pytest.mark.slow
def test_a_report_keeps_to_the_schema():
    said = valid(report_of(32).to_json())
    assert said["schema"] == "opsmith.report/1"
    failed = [row for row in said["rows"] if row["status"] == "failed"]
    assert [(row["operator"], row["check"], row["code"]) for row in failed] == [
        (*place, code) for place, code in FAULTS.items()
    ]
    assert failed[0]["error"] == "infinite"
    assert failed[0]["samples"][-1] == {
        "cohort": "transposed",
        "dtype": "float32",
        "elements": 4,
        "cases": 1,
        "error": "infinite",
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"schema": "opsmith.report/2"},
        {"rows": [{}]},
        {"accepted": True},
    ],
)
def test_what_is_no_report_does_not_keep_to_it(wrong):
    said = {**json.loads(Report([]).to_json()), **wrong}
    with pytest.raises(jsonschema.ValidationError):
        valid(json.dumps(said))


def test_a_failure_without_a_code_does_not_keep_to_it():
    row = replace(FAILED, operator="a::b", check="fake")
    valid(Report([row]).to_json())
    for broken in (replace(row, code=""), replace(row, status="passed")):
        with pytest.raises(jsonschema.ValidationError):
            valid(Report([broken]).to_json())


@pytest.mark.parametrize("error", [2.0, None, math.inf])
def test_a_row_survives_the_way_between_processes(error):
    samples = (replace(FAILED.samples[0], error=error), *FAILED.samples[1:2])
    row = replace(FAILED, notes=("one",), error=error, samples=samples)
    # The answers of processes are read as JSON, which has no infinity.
    assert Row.revive(json.loads(json.dumps(plain(row), allow_nan=False))) == row


def test_junit_has_a_case_for_every_row():
    report = report_of(8)
    root = ElementTree.fromstring(report.to_junit())
    assert root.tag == "testsuites"
    suites = root.findall("testsuite")
    assert [suite.get("name") for suite in suites][:1] == ["many::operator_0 (cpu)"]
    assert sum(len(suite.findall("testcase")) for suite in suites) == len(report.rows)
    assert int(root.get("tests")) == len(report.rows)
    assert int(root.get("failures")) == len(root.findall(".//failure")) == len(report.failures)
    assert int(root.get("skipped")) == len(root.findall(".//skipped")) == 8
    first = root.find(".//failure")
    assert first.get("type") == "OPS-LAYOUT-STRIDE"
    assert first.get("message").startswith("the result[0, 1] is </script>")
    assert "repeat: opsmith check scale.py" in first.text
    case = root.find(".//testcase")
    assert (case.get("classname"), case.get("time")) == ("many::operator_0.cpu", "0.400")


def test_junit_is_xml_whatever_a_compiler_printed():
    row = replace(FAILED, operator="a::b", check="build", message="\x1b[31merror\x00 \ufffe &<")
    (failure,) = ElementTree.fromstring(Report([row]).to_junit()).findall(".//failure")
    assert failure.get("message") == "�[31merror� � &<"
