"""The pytest plugin makes a test of each check, with readable ids, marks and failures."""

import subprocess
import sys

import pytest
import torch._dynamo  # noqa: F401  pytest forgets what it imports in this process; this imports once
from jaxtyping import Float
from torch import Tensor

import opsmith
import opsmith.kernels.toolchain.recipe
from opsmith import checks, testing


@opsmith.op("plugin::one")
def one(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    """A half of `x`."""
    return x / 2


@opsmith.op("plugin::two")
def two(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    """A third of `x`."""
    return x / 3


OPERATORS = """
import opsmith, opsmith.testing
from jaxtyping import Float
from torch import Tensor

@opsmith.op("plugin::{name}")
def {name}(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2

@{name}.register_kernel("cpu")
def kernel(x: Tensor) -> Tensor:
    return x * {factor}

test_{name} = opsmith.testing.suite({name}, select={select}, examples=5)
"""


@pytest.fixture
def run(pytester):
    """Run pytest with the plugin on a file that tests an operator whose kernel multiplies."""

    def run_file(name: str, factor: float, *options: str, select=("reference", "mutation")):
        text = OPERATORS.format(name=name, factor=factor, select=list(select))
        file = pytester.makepyfile(**{f"test_plugin_{name}": text})
        asked = [] if "pytest_opsmith" in sys.modules else ["-p", "pytest_opsmith"]
        return pytester.runpytest_inprocess("--strict-markers", *asked, *options, file)

    return run_file


def test_each_check_of_each_kernel_is_a_test(run):
    result = run("right", 2, "-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        ["*::test_right::cpu-reference PASSED*", "*::test_right::cpu-mutation PASSED*"]
    )


def test_a_failure_is_shown_in_the_checks_own_words(run):
    result = run("wrong", 2.5)
    result.assert_outcomes(passed=1, failed=1)
    text = result.stdout.str()
    assert "plugin::wrong: check 'reference' failed for the 'cpu' kernel." in text
    assert "smallest case: x: float32 (1,)" in text
    assert "Traceback" not in text
    assert "runner.py" not in text


def test_what_does_not_apply_is_skipped_with_the_reason(run):
    result = run("python_only", 2, "-rs", select=["onnxruntime"])
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*the kernel is Python*"])


def test_a_run_in_which_nothing_of_an_operator_was_checked_does_not_end_as_if_it_were(run):
    result = run("untried", 2, select=["onnxruntime"])
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(["plugin::untried: nothing was checked: the kernel is Python*"])
    assert run("tried", 2, select=["onnxruntime", "mutation"]).ret == pytest.ExitCode.OK


@pytest.mark.parametrize(
    ("expression", "ids"),
    [
        ("slow", ["cpu-export"]),
        ("not slow", ["cpu-reference"]),
        ("device(name='cpu')", ["cpu-reference", "cpu-export"]),
        ("device(name='cuda')", []),
        ("opsmith", ["cpu-reference", "cpu-export"]),
    ],
)
def test_marks_select_what_is_slow_and_which_device(run, expression, ids):
    result = run(
        "marked", 2, "--collect-only", "-q", "-m", expression, select=["reference", "export"]
    )
    found = [line.rpartition("::")[2] for line in result.outlines if "::" in line]
    assert found == ids


def test_the_seed_and_the_number_of_cases_are_options(run, monkeypatch):
    asked = []
    original = checks.run
    monkeypatch.setattr(
        checks, "run", lambda *args, **kw: asked.append(kw) or original(*args, **kw), raising=False
    )
    run("chosen", 2, "--opsmith-seed", "7", "--opsmith-examples", "2", select=["mutation"])
    assert [(given["seed"], given["examples"]) for given in asked] == [(7, 2)]


def test_a_check_that_is_not_there_is_said_when_the_file_is_collected(run):
    result = run("misspelt", 2, select=["refrence"])
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*there is no check 'refrence'; did you mean 'reference'?*"])


def test_several_operators_are_named():
    suite = testing.suite([one, two], select=["mutation"])
    assert [test.id for test in suite.tests()] == [
        "plugin::one-reference-mutation",
        "plugin::two-reference-mutation",
    ]


def test_what_is_skipped_is_not_collected():
    everything = [test.id for test in testing.suite(one).tests()]
    left = [test.id for test in testing.suite(one, skip=["export", "mutation"]).tests()]
    assert set(everything) - set(left) == {"reference-export", "reference-mutation"}


def test_the_plugin_imports_no_torch():
    script = "import sys, pytest_opsmith; assert not {'torch', 'opsmith'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def unbuilt(tmp_path, monkeypatch):
    """An operator whose kernel does not compile, and a list of all the times that it is tried."""
    tried = []
    original = opsmith.kernels.toolchain.recipe._compile

    def fail(recipe, *others):
        if not recipe.name.startswith("plugin__unbuilt"):
            return original(recipe, *others)  # what opsmith itself has compiled, once
        tried.append(recipe.name)
        raise opsmith.BuildError(f"{recipe.subject} did not compile: expected ';'")

    monkeypatch.setattr("opsmith.kernels.toolchain.recipe._compile", fail)
    (tmp_path / "semicolon.cpp").write_text("int no_semicolon = 1\n")

    @opsmith.op("plugin::unbuilt")
    def operator(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x * 2

    operator.register_kernel("cpu", source=tmp_path / "semicolon.cpp")
    return operator, tried


@pytest.mark.slow
def test_a_build_that_failed_is_tried_by_one_test_of_a_suite(unbuilt):
    operator, tried = unbuilt
    build, *others = testing.suite(operator).tests()
    found = build.run()
    assert (found.check, found.status) == ("build", "failed")
    once = list(tried)
    assert len(others) > 10
    assert {(row.status, row.message) for row in (test.run() for test in others)} == {
        ("not run", "not built")
    }
    assert tried == once
    # Asked for again, it is built again: the file may be right by now.
    build.run()
    assert tried == once * 2


def test_a_suite_without_a_test_of_the_build_says_that_nothing_was_built(unbuilt):
    operator, _ = unbuilt
    first, second = testing.suite(operator, select=["reference", "mutation"]).tests()
    found = first.run()
    assert found.status == "failed"
    assert "did not compile: expected ';'" in found.explain()
    assert second.run().message == "not built"


def test_a_build_that_failed_is_tried_by_one_of_parametrized_tests(unbuilt):
    operator, tried = unbuilt
    mark = testing.parametrize(operator, select=["reference", "mutation"])
    first, second = (parameter.values[0] for parameter in mark.args[1])
    with pytest.raises(opsmith.CheckError, match="did not compile: expected ';'"):
        first()
    once = list(tried)
    assert once
    with pytest.raises(opsmith.CheckError) as error:
        second()
    assert str(error.value) == (
        "plugin::unbuilt: not built; the first of these tests that failed says why"
    )
    assert tried == once
