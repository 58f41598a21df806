"""A failure comes with Python that shows it, and is tried first by the next run."""

import shutil
import subprocess
import sys
from dataclasses import asdict

import failing
import faults_endings as endings
import pytest
import torch

from opsmith import checks
from opsmith.checks.catalogue import values
from opsmith.errors import ArgumentError
from opsmith.kernels import cache_folder
from opsmith.sources.importing import import_operators

pytestmark = pytest.mark.slow(cases=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One for all tests, so that what checks run in is started once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def cache(folder, monkeypatch):
    """A cache that knows no failure, and has what was built."""
    for left in folder.iterdir():
        left.unlink() if left.is_symlink() or left.is_file() else shutil.rmtree(left)
    for built in ("generated", "libraries", "objects", "precompiled", "programs"):
        (cache_folder() / built).mkdir(parents=True, exist_ok=True)
        (folder / built).symlink_to(cache_folder() / built)
    monkeypatch.setenv("OPSMITH_CACHE", str(folder))
    return folder


def failure(operator, **settings):
    select = [failing.ALL[operator]]
    (row,) = checks.run(operator, select=select, isolate=False, **settings).rows
    assert row.status == "failed"
    return row


@pytest.mark.parametrize("operator", failing.ALL, ids=lambda one: one.name)
def test_a_snippet_shows_the_difference(operator):
    row = failure(operator)
    assert row.explain().endswith(f"\n  in Python:\n\n{row.snippet}")
    with pytest.raises(AssertionError, match="not close"):
        exec(row.snippet, {})


def test_a_snippet_can_be_pasted_into_a_fresh_python():
    pasted = ""
    for operator, shown in ((failing.strided, ".as_strided("), (failing.large, "torch.load(")):
        text = failure(operator).snippet
        assert shown in text
        pasted += text + "\n"
    done = subprocess.run(
        [sys.executable, "-i", "-c", "0"], input=pasted, capture_output=True, text=True
    )
    assert done.stderr.count("AssertionError: Tensor-likes are not close!") == 2
    assert "SyntaxError" not in done.stderr
    assert done.stdout.count("tensor(") == 4


DECLARES = """
import opsmith
from jaxtyping import Float32
from torch import Tensor

@opsmith.op("snippets::elsewhere")
def elsewhere(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2
"""
REGISTERS = """
from elsewhere_declared import elsewhere

@elsewhere.register_kernel("cpu")
def _(x):
    return x * 3
"""


@pytest.mark.long
def test_a_kernel_that_another_file_registers_is_there_when_a_failure_is_repeated(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere_declared.py").write_text(DECLARES)
    (tmp_path / "elsewhere_kernel.py").write_text(REGISTERS)
    (operator,) = import_operators("elsewhere_kernel.py").operators
    (row,) = (one for one in checks.run(operator, select=["reference"]).rows if one.message)
    assert row.status == "failed"
    files = "elsewhere_declared.py elsewhere_kernel.py"
    assert row.command == f"opsmith check {files} --check reference --seed 0"
    done = subprocess.run(
        [sys.executable, "-c", row.snippet], capture_output=True, text=True, cwd="/"
    )
    assert "AssertionError: Tensor-likes are not close!" in done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    ("operator", "check"),
    [(operator, check) for operator, names in failing.ROUTES.items() for check in names],
    ids=str,
)
@pytest.mark.usefixtures("no_shrinking")
def test_a_snippet_of_a_target_exports_and_compares_there(operator, check):
    (row,) = (
        row
        for row in checks.run(operator, select=[check], isolate=False, examples=4).rows
        if row.check == check
    )
    assert row.status == "failed", row.message
    with pytest.raises(AssertionError, match=r"not close|not equal|do not match"):
        exec(row.snippet, {})


@pytest.mark.usefixtures("no_shrinking")
def test_a_wrong_translation_is_blamed_where_it_is_written():
    report = checks.run(failing.translated, select=["onnx-standard"], isolate=False, examples=4)
    (row,) = (row for row in report.rows if row.check == "onnx-standard")
    _blames(row, failing.TRANSLATED_AT)


def _blames(row, line: int) -> None:
    blamed = f"ONNX translation: {failing.__file__}:{line}"
    assert row.blame == blamed
    assert f"\n  {blamed}\n" in row.explain()
    assert "kernel:" not in row.explain()


@pytest.mark.usefixtures("no_shrinking")
def test_a_snippet_runs_a_model_with_other_sizes_than_it_was_exported_with():
    report = checks.run(failing.first_five, select=["onnx-standard"], isolate=False, examples=4)
    (row,) = (row for row in report.rows if row.check == "onnx-standard")
    _blames(row, failing.first_five_to_onnx.__code__.co_firstlineno)
    assert "dynamic_shapes=(tuple(dynamic_shapes(op.signature, arguments)),)" in row.snippet
    # Exported with few rows, it is right for them.
    given: dict = {}
    with pytest.raises(AssertionError):
        exec(row.snippet, given)
    assert given["arguments"]["x"].shape == (3,)
    assert given["others"]["x"].shape == (7,)


@pytest.mark.long
@pytest.mark.parametrize(
    ("operator", "check", "code"),
    [
        (failing.undeclared, "mutation", "OPS-MUTATION-UNDECLARED"),
        (failing.sizes_fixed, "compile", "OPS-COMPILE-AGAIN"),
        (endings.segfault, "mutation", "OPS-CALL-CRASH"),
        (endings.hang, "mutation", "OPS-CALL-HANG"),
        (endings.stale, "reference", "OPS-STATE-EARLIER"),
        (endings.by_shape, "layouts", "OPS-STATE-EARLIER"),
        (endings.late, "mutation", "OPS-CALL-CRASH"),
    ],
    ids=lambda one: getattr(one, "name", one),
)
def test_what_one_call_does_not_show_the_check_shows_again(operator, check, code, capsys):
    (row,) = checks.run(operator, select=[check], time_limit=5.0).rows
    assert row.code == code
    with pytest.raises(AssertionError):
        exec(row.snippet, {})
    shown = capsys.readouterr().out
    assert f"check {check!r} failed" in shown
    assert row.message.splitlines()[0].partition(" (")[0] in shown


def test_cases_that_are_given_are_the_only_ones_and_keep_their_strides():
    x = torch.arange(6.0).view(2, 3)
    settings = {"select": ["reference", "mutation"], "isolate": False}
    report = checks.run(failing.strided, cases=[{"x": x}], **settings)
    assert report.ok
    assert [row.cases for row in report.rows] == [1, 1]
    wrong, right = checks.run(failing.strided, cases=[{"x": x.t()}], **settings).rows
    assert wrong.status == "failed"
    assert wrong.case == ("x: float32 (3, 2) as given [[0, 3], [1, 4], [2, 5]] (given)")
    assert (right.status, right.cases) == ("passed", 1)


@pytest.mark.long  # test_cases_that_are_given_are_the_only_ones_...
def test_cases_that_are_given_may_be_one_tensor():
    x = torch.ones(3)
    ran = []
    for arguments in ({"x": x, "y": x}, {"x": x, "y": x.clone()}):
        (row,) = checks.run(failing.same, cases=[arguments], select=["reference"]).rows
        ran.append(row.status)
    assert ran == ["failed", "passed"]


def test_cases_that_do_not_fit_are_refused_at_once():
    with pytest.raises(ArgumentError, match="'x'"):
        checks.run(failing.strided, cases=[{"x": torch.ones(2)}])
    with pytest.raises(ValueError, match="arguments of one operator, and there are 2"):
        checks.run([failing.strided, failing.large], cases=[{"x": torch.ones(2)}])


def test_a_failing_case_is_tried_first_by_the_next_run(cache, monkeypatch):
    # The rule of the sizes that fail takes further cases.
    monkeypatch.setattr(values, "tell_sizes", lambda *_: None)
    first = failure(failing.large, stores=True)
    assert len(list(cache.rglob("*.pt"))) == 1
    # Another seed and a single example, which would not come to it.
    settings = {"seed": 5, "examples": 1}
    again = failure(failing.large, **settings, stores=True, recalls=True)
    assert again.cases == 1
    assert again.case == f"{first.case} (failed before)"
    assert "--seed" in first.command
    assert "--seed" not in again.command


def test_a_sampled_case_is_not_tried_where_the_authors_alone_are_checked(monkeypatch):
    failure(failing.large, stores=True)
    monkeypatch.setattr(failing.large, "only_registered_cases", True)
    (row,) = checks.run(
        failing.large, select=["reference"], isolate=False, stores=True, recalls=True
    ).rows
    assert row.code == "OPS-CASES-NONE"


def test_a_registered_case_is_tried_again_until_the_author_takes_it_out(monkeypatch):
    several = [{"x": torch.full((3,), 1.0)}, {"x": torch.full((200,), 2.0)}]
    monkeypatch.setattr(failing.large, "only_registered_cases", True)
    monkeypatch.setattr(failing.large, "cases", [lambda dtype, seed: iter(several)])
    settings = {"stores": True, "recalls": True}
    first = failure(failing.large, **settings)
    assert first.case.startswith("x: float32 (200,)") and "no. 2 of" in first.case
    assert failure(failing.large, **settings).case.endswith("(failed before)")
    several.pop()
    (row,) = checks.run(failing.large, select=["reference"], isolate=False, **settings).rows
    assert row.status == "passed", row.case


def test_a_case_that_passes_now_is_tried_once_more_and_forgotten(cache, monkeypatch):
    failure(failing.strided, stores=True)
    (stored,) = cache.rglob("*.pt")
    monkeypatch.setattr(failing, "MENDED", True)
    settings = {"select": ["layouts"], "isolate": False, "stores": True, "recalls": True}
    counts = []
    for _ in range(2):
        (row,) = checks.run(failing.strided, examples=8, **settings).rows
        assert row.status == "passed"
        assert not stored.exists()
        counts.append(row.cases)
    assert counts[0] == counts[1] + 1


def test_a_case_that_the_reference_takes_no_more_is_forgotten(cache, monkeypatch):
    failure(failing.large, stores=True)
    (stored,) = cache.rglob("*.pt")
    monkeypatch.setattr(failing, "CHOOSY", True)
    (row,) = checks.run(
        failing.large, select=["reference"], isolate=False, stores=True, recalls=True
    ).rows
    assert row.status == "passed", row.message
    assert not stored.exists()


def test_a_gradient_that_failed_fails_again_in_the_same_layout():
    first = failure(failing.strided_slope, stores=True)
    assert "with a gradient that came in" in first.message
    again = failure(failing.strided_slope, stores=True, recalls=True)
    assert again.message == first.message


def test_a_file_that_says_nothing_is_no_failure(cache):
    failure(failing.small, stores=True)
    (stored,) = cache.rglob("*.pt")
    for damaged in (b"", b"damaged", stored.read_bytes()[:-30]):
        stored.write_bytes(damaged)
        row = failure(failing.small, recalls=True)
        assert "failed before" not in row.case


def test_what_is_stored_holds_no_code(cache):
    failure(failing.various, stores=True)
    (stored,) = cache.rglob("*.pt")
    assert set(torch.load(stored, weights_only=True)["arguments"]) == {"xs", "z", "i", "name"}


@pytest.mark.long
def test_a_seed_repeats_a_run_bit_for_bit_in_any_process():
    def run(seed, isolate=False):
        settings = {"select": ["reference", "layouts"], "examples": 8, "stores": True}
        report = checks.run(failing.large, seed=seed, isolate=isolate, **settings)
        return [{**asdict(row), "seconds": 0} for row in report.rows]

    first = run(11)
    assert "failed" in {row["status"] for row in first}
    assert run(11) == first
    assert run(11, isolate=True) == first
    assert run(12) != first
