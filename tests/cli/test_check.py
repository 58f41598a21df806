import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from opsmith import checks

DECLARATION = """
import opsmith
from jaxtyping import Float
from torch import Tensor

@opsmith.op("cli_check::{name}")
def {name}(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2

@{name}.register_kernel("cpu")
def kernel(x: Tensor) -> Tensor:
    return x * {factor}
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Write a file that declares an operator whose kernel multiplies by `factor`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())

    def write_file(name: str, factor: float) -> str:
        (tmp_path / f"{name}.py").write_text(DECLARATION.format(name=name, factor=factor))
        return f"{name}.py"

    return write_file


@pytest.mark.slow
def test_what_is_right_passes(cli, write):
    outcome = cli("check", write("cli_right", 2), "--check", "reference", "--check", "validation")
    assert outcome.code == 0, outcome.stdout + outcome.stderr
    assert "cli_check::cli_right" in outcome.stdout
    assert "reference" in outcome.stdout
    assert max(map(len, outcome.stdout.splitlines())) <= 100
    assert outcome.stderr == ""


@pytest.mark.slow
def test_an_operator_of_which_nothing_can_be_checked_here_is_not_said_to_pass(cli, write):
    file = Path(write("cli_far", 2))
    file.write_text(file.read_text().replace('"cpu"', '"npu"'))
    outcome = cli("check", file, "--check", "onnxruntime", "--junit", "far.xml")
    assert outcome.code == 5
    assert "cli_check::cli_far: nothing was checked: " in outcome.stdout
    assert 'type="nothing was checked"' in Path("far.xml").read_text()


@pytest.mark.slow
def test_what_is_wrong_fails_with_the_command_that_repeats_it(cli, write):
    outcome = cli("check", write("cli_wrong", 2.5), "--check", "reference", "--seed", 7)
    assert outcome.code == 1
    assert "cli_check::cli_wrong: check 'reference' failed for the 'cpu' kernel" in outcome.stdout
    assert "repeat: opsmith check cli_wrong.py --check reference --seed 7\n" in outcome.stdout


@pytest.mark.long
def test_what_repeats_a_failure_says_all_that_decides_it(cli, write):
    file = write("cli_repeat", 2.5)
    given = ["--seed", 7, "--examples", 12, "--seconds", 30, "--time-limit", 90]
    outcome = cli("check", file, "--check", "reference", *given)
    (line,) = [line for line in outcome.stdout.splitlines() if "  repeat: " in line]
    assert line.endswith(
        "opsmith check cli_repeat.py --check reference --seed 7 --examples 12 --seconds 30 "
        "--time-limit 90"
    )
    again = cli(*line.split()[2:])
    failure = outcome.stdout.partition("failed for the")[2].partition("error:")[0]
    assert failure
    assert again.stdout.partition("failed for the")[2].partition("error:")[0] == failure


@pytest.mark.long
def test_adopted_operators_are_checked_too(cli, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    file = tmp_path / "cli_adopted.py"
    file.write_text(
        "import opsmith, torch\nfrom jaxtyping import Float\nfrom torch import Tensor\n"
        "@opsmith.adopt('aten::maximum')\n"
        "def maximum(self: Float[Tensor, '*n'], other: Float[Tensor, '*n'])"
        " -> Float[Tensor, '*n']:\n    return torch.stack([self, other]).amax(0)\n"
        "@opsmith.adopt('aten::minimum')\n"
        "def minimum(self: Float[Tensor, '*n'], other: Float[Tensor, '*n'])"
        " -> Float[Tensor, '*n']:\n    return torch.where(self > other, self, other)\n"
    )
    outcome = cli("check", file, "--check", "dispatch,reference,validation", "--json")
    rows = {(row["operator"], row["check"]): row for row in json.loads(outcome.stdout)["rows"]}
    assert rows["aten::maximum", "reference"]["status"] == "passed"
    assert rows["aten::minimum", "reference"]["status"] == "failed"
    assert "defined elsewhere" in rows["aten::maximum", "dispatch"]["message"]
    assert "defined elsewhere" in rows["aten::maximum", "validation"]["message"]


@pytest.mark.long
def test_rows_come_as_they_end_without_colours_where_no_terminal_is(write, tmp_path):
    files = [tmp_path / write("cli_quick", 2), tmp_path / write("cli_slow", 2)]
    slow = files[1].read_text().rpartition("    return")[0]
    files[1].write_text(f"{slow}    import time\n    time.sleep(600)\n")
    command = [sys.executable, "-m", "opsmith", "check", *files, "--check", "reference"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        # The second operator's row never ends; the first one's is there before.
        lines = [process.stdout.readline() for _ in range(3)]
        process.terminate()
    assert lines[1] == b"cli_check::cli_quick  kernel: cpu\n"
    assert lines[2].startswith("✓  reference".encode())
    assert b"\x1b" not in b"".join(lines)


@pytest.mark.slow
def test_json_is_all_that_stdout_holds_and_checks_are_named_with_commas_too(cli, write):
    file = write("cli_json", 2.5)
    outcome = cli("check", file, "--check", "reference,mutation", "--json", "--examples", 3)
    assert outcome.code == 1
    said = json.loads(outcome.stdout)
    assert "✗  reference" in outcome.stderr
    assert said["ok"] is False
    rows = {row["check"]: (row["operator"], row["status"]) for row in said["rows"]}
    assert rows == {
        "reference": ("cli_check::cli_json", "failed"),
        "mutation": ("cli_check::cli_json", "passed"),
    }


@pytest.mark.long
def test_cpp_asks_for_the_checks_in_programs(cli, write):
    outcome = cli("check", write("cli_cpp", 2), "--check", "mutation", "--cpp", "--json")
    assert outcome.code == 0, outcome.stderr
    statuses = {row["check"]: row["status"] for row in json.loads(outcome.stdout)["rows"]}
    # A Python kernel runs in no such program.
    assert statuses == {"mutation": "passed", "aotinductor-cpp": "not applicable"}


@pytest.mark.slow
def test_a_report_is_a_page_and_a_junit_file_too(cli, write, tmp_path):
    file = write("cli_page", 2)
    written = ["--report", "out.html", "--junit", "out.xml"]
    outcome = cli("check", file, "--check", "mutation", *written)
    assert outcome.code == 0, outcome.stdout
    assert outcome.stderr == "wrote out.html\nwrote out.xml\n"
    assert "cli_check::cli_page" in (tmp_path / "out.html").read_text()
    (suite,) = ElementTree.parse(tmp_path / "out.xml").getroot()
    assert suite.get("name") == "cli_check::cli_page (cpu)"


def test_the_schema_is_printed_without_a_file_to_check(cli):
    outcome = cli("check", "--json-schema")
    assert outcome.code == 0
    assert json.loads(outcome.stdout)["$id"] == "opsmith.report/1"


@pytest.mark.parametrize("option", ["--report", "--junit"])
def test_a_report_without_a_folder_is_refused_before_anything_runs(cli, write, option):
    outcome = cli("check", write("cli_nowhere", 2), option, "absent/out")
    assert outcome.code == 2
    assert "there is no folder absent" in outcome.stderr


def test_an_unknown_check_is_refused_with_the_nearest(cli, write):
    outcome = cli("check", write("cli_unknown", 2), "--check", "referense")
    assert outcome.code == 2
    assert "there is no check 'referense'; did you mean 'reference'?" in outcome.stderr


def test_the_checks_are_listed(cli):
    outcome = cli("check", "--list")
    assert outcome.code == 0
    names = [line.split()[0] for line in outcome.stdout.splitlines()]
    assert {"reference", "fake", "gradient", "compile"} <= set(names)
    asked = dict(re.findall(r"^(\S+) .* \((--.+)\)$", outcome.stdout, re.MULTILINE))
    assert asked["large"] == "--large"
    assert asked["sanitize-thread"] == "--sanitize thread"


@pytest.mark.slow
def test_quick_runs_the_fourteen_checks_that_find_most(cli, write):
    outcome = cli("check", write("cli_quick", 2), "--quick", "--json", "--jobs", "1")
    assert outcome.code == 0, outcome.stderr
    rows = json.loads(outcome.stdout)["rows"]
    # A kernel in Python is not built, and no memory of opsmith's own is given to it.
    native = {"build", "exact", "bounds", "schedules"}
    native |= {"cuda-on-cpu", "ascendc-on-cpu", "triton-interpreter"}
    in_order = [one.name for one in checks.all_checks() if one.name in checks.QUICK]
    assert [row["check"] for row in rows] == [n for n in in_order if n not in native]
    assert len(checks.QUICK) == 14


def test_quick_and_named_checks_are_refused_together(cli, write):
    outcome = cli("check", write("cli_both", 2), "--quick", "--check", "reference")
    assert outcome.code == 2
    assert "--check and --quick both select the checks to run; give one of them" in outcome.stderr
