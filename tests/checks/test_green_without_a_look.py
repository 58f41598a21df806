"""What nobody looked at is green in no output: each kind of subject, beside each output."""

import io
import json
import sys
from dataclasses import dataclass
from xml.etree import ElementTree

import jsonschema
import pytest
from rich.console import Console

from opsmith import checks, testing
from opsmith.checks.report.json_junit import SCHEMA_FILE
from opsmith.checks.run_report import Report
from opsmith.cli.output import EXIT_CODES
from opsmith.errors import CheckError
from opsmith.sources.importing import import_operators

HEAD = """
import torch, opsmith, opsmith.testing
from jaxtyping import Float
from torch import Tensor

@opsmith.op("unlooked::{name}")
def {name}(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2
"""
CPU = """
@{name}.register_kernel("cpu")
def kernel(x: Tensor) -> Tensor:
    return x * 2
"""
FAR = CPU.replace("cpu", "npu")
REFUSES = HEAD.replace("return x * 2", 'raise ValueError("never")')
NO_CASES = """
@{name}.register_cases(only=True)
def cases(dtype: torch.dtype, seed: int):
    return []
"""
EMPTY_CASES = NO_CASES.replace("[]", "[{{'x': torch.ones(0, dtype=dtype)}}]")
CUDA = """
{name}.register_kernel("cuda", source="{name}.cu")
"""


@dataclass(frozen=True)
class Kind:
    """A kind of subject: how it is declared and checked, and what each output says of it."""

    text: str
    outcome: str
    said: str
    select: tuple[str, ...] = ("reference", "dispatch")
    seconds: float = 60.0
    #: How many tests of a suite pass: none that stands for a kernel, unless it was looked at.
    passed: int = 0


KINDS = {
    "sound": Kind(HEAD + CPU, "passed", "1 operator: 2 passed", passed=2),
    "reference_only": Kind(
        HEAD,
        "passed",
        "unlooked::reference_only has no kernel: its reference was checked",
        passed=2,
    ),
    "no_device": Kind(
        HEAD + FAR,
        "incomplete",
        "unlooked::no_device: no kernel was looked at: no npu device on this machine",
        passed=2,
    ),
    "a_device_beside_none": Kind(HEAD + CPU + FAR, "passed", "2 passed, 2 not", passed=2),
    "not_emulated": Kind(
        HEAD + CUDA,
        "incomplete",
        "unlooked::not_emulated: no kernel was looked at: opsmith does not emulate this kernel: ",
        select=("reference", "cuda-on-cpu"),
        passed=1,
    ),
    "no_compiler": Kind(
        HEAD + CUDA,
        "incomplete",
        "nothing was checked: unlooked::no_compiler (cuda): CXX names the C++ compiler",
        select=("cuda-on-cpu",),
    ),
    "no_case": Kind(HEAD + CPU + NO_CASES, "failed", "yield no case for this check"),
    "all_refused": Kind(
        REFUSES + CPU, "failed", "the reference refuses every sampled case", select=("dispatch",)
    ),
    "cut_short": Kind(
        HEAD + CPU,
        "incomplete",
        "of the 'cpu' kernel, reference could not try",
        select=("reference",),
        seconds=0,
    ),
    "empty_proof": Kind(
        HEAD + CPU + EMPTY_CASES,
        "incomplete",
        "nothing was checked: no result of 16 cases has an element to compare",
        select=("reference",),
    ),
    "not_applicable": Kind(
        HEAD + CPU,
        "incomplete",
        "nothing was checked: claims no parallel_dims",
        select=("parallel-dims",),
    ),
}
SOURCES = {"not_emulated": "#include <cutlass/cutlass.h>\n", "no_compiler": ""}


@pytest.fixture
def declared(tmp_path, monkeypatch):
    """Write a subject of a kind, and return the text of its file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())

    def write(kind: str) -> str:
        if kind == "no_compiler":
            monkeypatch.setenv("CXX", "/nowhere/c++")
        if kind in SOURCES:
            (tmp_path / f"{kind}.cu").write_text(SOURCES[kind])
        return KINDS[kind].text.format(name=kind)

    return write


@pytest.mark.parametrize("kind", KINDS)
def test_what_nobody_looked_at_is_green_in_no_output(kind, declared, tmp_path):
    (tmp_path / f"unlooked_{kind}.py").write_text(declared(kind))
    wanted = KINDS[kind]
    operators = import_operators(f"unlooked_{kind}.py").operators
    options = {"select": wanted.select, "seconds": wanted.seconds, "examples": 4}
    report = checks.run(operators, isolate=False, **options)
    assert report.outcome == wanted.outcome, report.explain()
    assert report.ok is (wanted.outcome == "passed")
    assert EXIT_CODES[report.outcome] == {"passed": 0, "failed": 1, "incomplete": 5}[report.outcome]
    _table(report, wanted)
    _documents(report, wanted)
    if report.ok:
        assert testing.check(operators, **options).ok
    else:
        with pytest.raises(CheckError) as caught:
            testing.check(operators, **options)
        assert wanted.said in str(caught.value)


def _table(report: Report, wanted: Kind) -> None:
    text = io.StringIO()
    Console(file=text, width=500).print(report.table())
    assert wanted.said in text.getvalue()
    assert ("has no kernel" in text.getvalue()) is bool(report.without_kernel)


def _documents(report: Report, wanted: Kind) -> None:
    said = json.loads(report.to_json())
    jsonschema.validate(said, json.loads(SCHEMA_FILE.read_text()))
    assert (said["ok"], said["outcome"]) == (report.ok, wanted.outcome)
    assert said["without_kernel"] == report.without_kernel
    page = report.to_html()
    assert f'<p class="verdict {wanted.outcome}">' in page
    mark = {"passed": "✓", "failed": "✗", "incomplete": "!"}[wanted.outcome]
    assert f"<title>{mark} opsmith: " in page
    root = ElementTree.fromstring(report.to_junit())
    bad = root.get("errors") != "0" or root.get("failures") != "0"
    assert bad is (wanted.outcome != "passed")
    if wanted.outcome == "incomplete":
        (error,) = root.findall(".//error")
        type_ = wanted.said.removeprefix(f"{report.rows[0].operator}: ").partition(":")[0]
        assert error.get("type") == ("cut short" if "could not try" in wanted.said else type_)
    none = root.findall(".//properties/property[@name='kernel']")
    assert [one.get("value") for one in none] == ["none"] * len(report.without_kernel)


@pytest.mark.parametrize("kind", [name for name in KINDS if name != "no_compiler"])
def test_what_nobody_looked_at_is_green_for_pytest_neither(kind, declared, pytester, tmp_path):
    wanted = KINDS[kind]
    given = f"select={list(wanted.select)}, seconds={wanted.seconds}, examples=4"
    text = f"{declared(kind)}\ntest_it = opsmith.testing.suite({kind}, {given})\n"
    name = f"test_unlooked_{kind}_suite"
    file = pytester.makepyfile(**{name: text.replace("unlooked::", "unlooked_suite::")})
    if kind in SOURCES:
        (pytester.path / f"{kind}.cu").write_text(SOURCES[kind])
    asked = [] if "pytest_opsmith" in sys.modules else ["-p", "pytest_opsmith"]
    result = pytester.runpytest_inprocess(*asked, file)
    outcomes = result.parseoutcomes()
    assert outcomes.get("passed", 0) == wanted.passed
    green = result.ret == pytest.ExitCode.OK
    assert green is (wanted.outcome == "passed")
    if wanted.outcome == "incomplete" and not outcomes.get("failed"):
        assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
        said = wanted.said.replace("unlooked::", "unlooked_suite::")
        result.stdout.fnmatch_lines([f"*{said}*"])


def test_no_kernel_is_for_the_device_that_was_asked_for(declared, tmp_path):
    text = declared("no_device").replace("unlooked::", "unlooked_far::")
    (tmp_path / "unlooked_far.py").write_text(text)
    operators = import_operators("unlooked_far.py").operators
    options = {"select": ["reference", "layouts"], "devices": ("cpu",), "examples": 4}
    report = checks.run(operators, isolate=False, **options)
    said = "no kernel was looked at: it is for npu, and calls on cpu were asked for"
    wanted = Kind("", "incomplete", f"unlooked_far::no_device: {said}")
    assert report.outcome == wanted.outcome, report.explain()
    assert EXIT_CODES[report.outcome] == 5
    _table(report, wanted)
    _documents(report, wanted)


def test_a_kernel_for_the_device_that_was_asked_for_stands_for_the_others(declared, tmp_path):
    text = declared("a_device_beside_none").replace("unlooked::", "unlooked_both::")
    (tmp_path / "unlooked_both.py").write_text(text)
    operators = import_operators("unlooked_both.py").operators
    report = checks.run(
        operators, select=["reference"], devices=("cpu",), isolate=False, examples=4
    )
    assert [(row.kernel, row.status) for row in report.rows] == [("cpu", "passed")]
