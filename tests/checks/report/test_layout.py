"""How a report looks in terminals, with rows of real runs: the operator of `opsmith new`."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from reports import APART, PASSED
from rich.console import Console

from opsmith.checks.report.rows import Row
from opsmith.checks.report.table import LEGEND, Table, ending, show
from opsmith.checks.run_report import Report

*ROWS, FAILURE = map(Row.revive, json.loads((Path(__file__).parent / "real_rows.json").read_text()))
ALL_PASSED = Report(ROWS)
ONE_FAILED = Report([FAILURE if row.check == FAILURE.check else row for row in ROWS])
WIDTHS = [60, 80, 120]


def _shown(report, width, verbose=False):
    """The lines that `opsmith check` prints on a terminal."""
    console = Console(file=io.StringIO(), width=width, highlight=False)
    table = Table(console.print, [row.check for row in report.rows], verbose)
    for row in report.rows:
        table.add(row)
    table.flush()
    show(console, ending(report, verbose=verbose, legend=LEGEND))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def _on_a_screen(report, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    return str(report).splitlines()


@pytest.mark.parametrize("width", WIDTHS)
def test_a_passed_row_is_one_line(width):
    lines = _shown(ALL_PASSED, width)
    passed = [row.check for row in ROWS if row.status == "passed"]
    begin = 2 + len(passed)
    assert [line.split()[:2] for line in lines[2:begin]] == [["✓", name] for name in passed]
    assert lines[begin].startswith("–  exact-gradient: no operator is registered as the backward")
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", WIDTHS)
def test_a_note_that_does_not_fit_its_line_is_counted_and_never_cut(width):
    lines = _shown(ALL_PASSED, width)
    by_name = {line.split()[1]: line for line in lines if line.startswith("✓")}
    assert by_name["reference"].endswith("  1 note")
    assert by_name["exact"].endswith("  2 notes")
    fits = "6000 calls with equal arguments" if width == 120 else "1 note"
    assert by_name["statefulness"].endswith(f"  {fits}")
    assert "…" not in "".join(lines)


@pytest.mark.parametrize("width", WIDTHS)
def test_all_notes_are_shown_if_they_are_asked_for(width):
    lines = _shown(ALL_PASSED, width, verbose=True)
    said = " ".join(" ".join(lines).split())
    for row in ROWS if width < 120 else ():  # beside the rows, lines of notes alternate with them
        for note in row.notes:
            assert note in said
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", [46, *WIDTHS])
def test_what_did_not_run_is_told_once_for_each_reason(width):
    said = " ".join(" ".join(_shown(ALL_PASSED, width)).split())
    assert said.count("register_onnx was not called") == 1
    assert "onnx-standard, onnx-standard-torchscript: register_onnx was not called" in said


def test_many_rows_that_do_not_apply_for_one_reason_are_counted():
    absent = [
        replace(APART, operator="t::f", kernel="cuda", check=str(number), message="no cuda device")
        for number in range(20)
    ]
    ran = replace(PASSED, operator="t::f", kernel="cuda", check="cuda-on-cpu")
    lines = _shown(Report([*absent[:9], ran, *absent[9:]]), 80)
    assert lines[2].split()[1] == "cuda-on-cpu"
    assert lines[3] == "–  20 checks: no cuda device"


@pytest.mark.parametrize("report", [ALL_PASSED, ONE_FAILED], ids=["passed", "one failed"])
def test_a_report_prints_itself_on_a_screen(report, monkeypatch):
    lines = _on_a_screen(report, 80, monkeypatch)
    assert len(lines) <= 23  # a line is the prompt's
    assert max(map(len, lines)) <= 80
    assert lines[-1] == report.summary()


@pytest.mark.parametrize("width", WIDTHS)
def test_a_report_on_a_screen_names_every_row(width, monkeypatch):
    said = " ".join(_on_a_screen(ONE_FAILED, width, monkeypatch))
    for row in ROWS:
        assert row.check in said
    assert "33 passed: build, dispatch, exact" in said
    assert "1 failed: reference" in said


@pytest.mark.parametrize("width", WIDTHS)
def test_a_failure_is_wrapped_at_words_and_its_command_is_left_whole(width):
    command = f"opsmith check {'a_long_folder/' * 9}my_op.py --check reference"
    lines = _shown(Report([replace(FAILURE, command=command)]), width)
    assert f"  repeat: {command}" in lines
    said = [line for line in lines if "opsmith check" not in line]
    assert max(map(len, said)) <= width
    assert f"{FAILURE.message}" in " ".join(" ".join(said).split())
    assert f"smallest case: {FAILURE.case}" in " ".join(" ".join(said).split())


def test_the_case_as_python_is_shown_if_more_is_asked_for_and_can_be_pasted():
    assert "in Python" not in "\n".join(_shown(ONE_FAILED, 80))
    assert f"\n  in Python:\n\n{FAILURE.snippet}\n" in "\n".join(_shown(ONE_FAILED, 80, True))


def test_every_failure_is_told_in_full_if_more_is_asked_for():
    failures = [replace(FAILURE, check=name) for name in "vwxyz"]
    few, all_ = ("\n".join(_shown(Report(failures), 80, verbose)) for verbose in (False, True))
    assert (few.count("smallest case"), all_.count("smallest case")) == (3, 5)
    assert "my_ops::my_op: y, z failed too, perhaps for the same reason." in few
    assert "failed too" not in all_


@pytest.mark.parametrize("width", [46, *WIDTHS])
@pytest.mark.parametrize("status", ["not applicable", "cut short"])
def test_a_remark_has_room_at_every_width_and_is_not_cut(width, status):
    said = replace(ROWS[0], check="vmap", status=status, message="word " * 40)
    lines = _shown(Report([ROWS[1], said]), width)
    assert max(map(len, lines)) <= width
    assert " ".join(lines).count("word") == 40
    # At most a third of the lines of a narrow terminal would do for the words.
    assert len([line for line in lines if "word" in line]) <= 3 + 40 * 5 // 28


def test_a_report_as_text_has_no_colours(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in a notebook
    assert "\x1b" not in str(ONE_FAILED)


def test_a_notebook_shows_what_print_shows_once(monkeypatch):
    shown = []
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda *args: shown.append(args))
    page = ONE_FAILED._repr_html_()
    assert ONE_FAILED.summary() in page
    assert "33 passed: build" in page
    assert shown == []
    assert repr(ONE_FAILED) == f"<Report: {ONE_FAILED.summary()}>"
