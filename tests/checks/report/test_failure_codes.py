"""Every failure has a code, every code an explanation, and every example its failure."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from emulated_sources import obstacle

from opsmith import checks
from opsmith.checks import protocol
from opsmith.checks.cases import search
from opsmith.checks.report.failure_codes import UnknownCodeError, catalogue, explanation, page
from opsmith.checks.report.rows import Row
from opsmith.kernels import INCLUDE
from opsmith.kernels.adapters import kernel_files
from opsmith.kernels.toolchain.compilers import find_compiler
from opsmith.kernels.toolchain.torch_paths import torch_paths
from opsmith.sources.importing import import_operators

REPOSITORY = Path(__file__).parents[3]
SOURCES = sorted((REPOSITORY / "opsmith").rglob("*.py"))
CODE = re.compile(r"OPS(?:-[A-Z]+)+")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def calls(path: Path, name: str):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == name:
            yield node


def code_of(call: ast.Call) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == "code"), None)


def test_no_failure_is_raised_without_a_code():
    raised = [(path, call) for path in SOURCES for call in calls(path, "Failure")]
    assert len(raised) > 50
    without = [f"{path}:{call.lineno}" for path, call in raised if code_of(call) is None]
    assert without == []


def test_every_code_in_the_sources_is_explained_and_every_explained_code_is_in_the_sources():
    used = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                used |= {node.value} if CODE.fullmatch(node.value) else set()
    assert used == set(catalogue())


def test_every_explanation_is_whole():
    for entry in catalogue().values():
        assert entry.title.endswith(".")
        assert entry.title.count("\n") == 0
        assert entry.cause and entry.remedy
        assert BLOCK.search(entry.example), entry.code


def test_the_page_stands_once_and_its_table_lists_every_entry():
    assert page() == (REPOSITORY / "docs" / "reference" / "failures.md").read_text()
    assert (REPOSITORY / "opsmith" / "checks" / "report" / "failures.md").is_symlink()
    table = page().partition("| code | what is wrong |\n|---|---|\n")[2].partition("\n\n")[0]
    assert table.splitlines() == [
        f"| [`{code}`](#{code.lower()}) | {entry.title} |" for code, entry in catalogue().items()
    ]


def test_a_code_is_found_however_it_is_written():
    for written in ("OPS-LAYOUT-STRIDE", "layout-stride", "ops_layout_stride"):
        assert explanation(written).code == "OPS-LAYOUT-STRIDE"


def test_a_near_miss_suggests_what_is_meant():
    with pytest.raises(UnknownCodeError, match="'OPS-LAYOUT-STRIDES'; is it OPS-LAYOUT-STRIDE"):
        explanation("OPS-LAYOUT-STRIDES")
    with pytest.raises(UnknownCodeError, match="is it OPS-DISPATCH-KERNEL"):
        explanation("dispatch")
    with pytest.raises(UnknownCodeError, match="'OPS-LAYOT'; is it OPS-LAYOUT-"):
        explanation("OPS-LAYOT")
    with pytest.raises(UnknownCodeError, match="is it OPS-GRADIENT-STRIDE"):
        explanation("gradient-strides")
    for unlike in ("zzz", "foo"):
        with pytest.raises(UnknownCodeError, match="`opsmith explain` lists all"):
            explanation(unlike)


def test_a_failure_in_full_says_how_to_read_about_its_code():
    row = Row("a::b", "cpu", "layouts", "failed", message="wrong", code="OPS-LAYOUT-STRIDE")
    assert row.explain().endswith("  explain: opsmith explain OPS-LAYOUT-STRIDE")


# --- the examples --------------------------------------------------------------------------------

PRELUDE = next(body for kind, body in BLOCK.findall(page()) if kind == "py")
#: Such kernels take a process with them, or have to be built. Those of test_worker.py and of
#: harness/test_rows.py have the same faults, and these codes.
ELSEWHERE = {"OPS-CALL-CRASH", "OPS-CALL-EXIT", "OPS-CALL-HANG"}
COMPILED = [code for code in catalogue() if "```cpp" in catalogue()[code].example]
#: Those of tests/faults/in_cuda have the same faults, and these codes.
EMULATED = [code for code in catalogue() if "```cu\n" in catalogue()[code].example]
#: These need more than an operator: a sanitizer, a target, a candidate, a broken machine.
TOLD = {
    "OPS-CALL-MEMORY",
    "OPS-CHECK-LOST",
    "OPS-COMPILE-KERNEL",
    "OPS-EXPORT-GRAPH",
    "OPS-MUTATION-VERSION",
    "OPS-SHARDING-MOVES",
    "OPS-SIZE-LARGE",
    "OPS-SIZE-NARROW",
}
#: Those of Ascend C are what tests/faults/in_ascendc plants.
FAMILIES = ("OPS-JUDGE-", "OPS-NPU-", "OPS-SANITIZE-", "OPS-TARGET-")


def blocks(code: str) -> dict[str, str]:
    return dict(BLOCK.findall(catalogue()[code].example))


def test_examples_that_nobody_runs_are_few_and_named():
    told = {code for code in catalogue() if "py" not in blocks(code)}
    assert {code for code in told if not code.startswith(FAMILIES)} == TOLD


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize(
    "code",
    [c for c in catalogue() if "py" in blocks(c) and c not in {*ELSEWHERE, *COMPILED, *EMULATED}],
)
def test_an_example_gives_the_failure_that_is_shown(code, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    protocol.all_checks()
    monkeypatch.setattr(protocol, "_CHECKS", dict(protocol._CHECKS))
    # What matters here is what is said, not of how small a case.
    monkeypatch.setattr(search, "SHRINK_SECONDS", 0.2)
    shown = blocks(code)
    file = tmp_path / f"example_{code.replace('-', '_').lower()}.py"
    file.write_text(PRELUDE + shown["py"])
    first, _, message = shown["text"].partition("\n")
    (check,) = re.findall(r"check '([\w-]+)' failed", first)
    operators = import_operators(str(file)).operators
    report = checks.run(operators, select=[check], isolate=False, examples=24)
    (row,) = [row for row in report.rows if row.check == check]
    assert row.status == "failed", row
    assert row.code == code, row.explain()
    said = row.explain()
    pattern = ".*".join(map(re.escape, f"{first}\n{message.rstrip()}".split("…")))
    assert re.match(pattern, said, re.DOTALL), said


@pytest.mark.slow
def test_the_examples_in_cpp_compile_but_for_the_one_that_must_not(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    sources = []
    for code in COMPILED:
        shown = blocks(code)
        name = shown["cpp"].partition("\n")[0].removeprefix("// ")
        (tmp_path / name).write_text(shown["cpp"])
        if code != "OPS-BUILD-FAILED":
            sources.append(name)
        file = tmp_path / f"compiled_{name.removesuffix('.cpp')}.py"
        file.write_text(PRELUDE + shown["py"])
        (operator,) = import_operators(str(file)).operators
        for header, text in kernel_files(operator.signature).items():
            (tmp_path / header).write_text(text)
    assert len(sources) == 7

    def compile_all(names: list[str]) -> subprocess.CompletedProcess[str]:
        together = tmp_path / "together.cc"
        together.write_text("".join(f'#include "{name}"\n' for name in names))
        folders = [f"-I{folder}" for folder in (INCLUDE, *torch_paths().include)]
        compiler = find_compiler("the examples").path
        command = [compiler, "-std=c++20", "-fsyntax-only", *folders, str(together)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = compile_all(sources)
    assert done.returncode == 0, done.stderr
    assert "half.cpp:8" in compile_all(["half.cpp"]).stderr


@pytest.mark.parametrize("code", EMULATED)
def test_the_examples_in_cuda_can_be_emulated(code, tmp_path):
    shown = blocks(code)["cu"]
    for name in re.findall(r'#include "(.+)"', shown):
        (tmp_path / name).touch()
    assert obstacle(tmp_path, shown) == "None"


# --- the command ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_explain_prints_cause_example_and_remedy_in_80_columns(cli):
    for code in catalogue():
        outcome = cli("explain", code)
        assert outcome.code == 0, outcome.stderr
        lines = outcome.stdout.splitlines()
        assert lines[0].startswith(code)
        assert [line for line in lines if line in ("Cause", "Example", "Remedy")] == [
            "Cause",
            "Example",
            "Remedy",
        ]
        assert max(map(len, lines)) <= 80, code
        assert not any(line.endswith(" ") for line in lines)


def test_explain_alone_lists_every_code(cli):
    outcome = cli("explain")
    assert outcome.code == 0
    assert set(CODE.findall(outcome.stdout)) == set(catalogue())
    assert max(map(len, outcome.stdout.splitlines())) <= 80


def test_explain_of_no_code_is_refused_with_those_that_may_be_meant(cli):
    outcome = cli("explain", "OPS-FAKE-STRIDES")
    assert outcome.code == 2
    assert outcome.stderr == (
        "error: there is no code 'OPS-FAKE-STRIDES'; is it OPS-FAKE-STRIDE?\n"
    )
