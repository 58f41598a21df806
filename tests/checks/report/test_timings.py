"""A table says what the time of each row was spent on."""

import json

import jsonschema
import pytest
from rich.console import Console

from opsmith.checks.report.json_junit import SCHEMA_FILE
from opsmith.checks.report.rows import FROM_BEFORE, Row
from opsmith.checks.report.table import timings
from opsmith.checks.run_report import Report

ROWS = [
    Row("a::b", "cpu", "build", "passed", seconds=3.0, timings={"compiling": 2.5, "": 0.5}),
    Row("a::b", "cpu", "bounds", "passed", seconds=0.7, timings={"truth": 0.5, "calls": 0.2}),
    Row("a::b", "cpu", "layouts", "not run", message="not run because of reference"),
]


@pytest.mark.parametrize("width", [80, 100])
def test_each_row_that_ran_tells_what_its_seconds_were_spent_on(width):
    console = Console(width=width, record=True, file=None, quiet=False)
    with console.capture() as captured:
        console.print(timings(Report(ROWS)))
    lines = [line.split() for line in captured.get().splitlines()[1:]]
    names = ["drawing", "truth", "calls", "compiling", "starting", "waiting", "rest", "all"]
    assert lines == [
        ["check", *names],
        ["build", "2.50", "0.50", "3.00"],
        ["bounds", "0.50", "0.20", "0.70"],
        ["all", "rows", "0.50", "0.20", "2.50", "0.50", "3.70"],
    ]


def test_a_program_reads_the_same_and_a_row_comes_back_as_it_was():
    document = json.loads(Report(ROWS).to_json())
    jsonschema.validate(document, json.loads(SCHEMA_FILE.read_text()))
    assert document["rows"][0]["timings"] == {"compiling": 2.5, "": 0.5}
    assert [Row.revive(row) for row in document["rows"]] == ROWS


def test_a_report_names_the_rows_that_are_from_before():
    kept = Row("a::b", "cpu", "bounds", "passed", notes=(FROM_BEFORE,))
    assert list(Report([ROWS[0], kept], elapsed=1.0).remarks()) == [
        "from before, since nothing that they rest on has changed: bounds"
    ]
