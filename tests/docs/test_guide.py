"""A program that reads the guide and nothing else can write an operator that passes."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from opsmith.checks.report.failure_codes import catalogue

REPOSITORY = Path(__file__).parents[2]
GUIDE = (REPOSITORY / "docs" / "how-to" / "guide.md").read_text()
FILE = re.compile(r"^`([\w.]+)`:\n\n```(?:py|cpp)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = [
    line for kind, body in BLOCK.findall(GUIDE) if kind == "sh" for line in body.split("\n")
]
#: What the whole check takes minutes for is in the tests of its parts; these are the telling ones.
FEW = "bounds,schedules,reference,layouts,gradient,fake"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The folder that a reader has after copying every file."""
    made = tmp_path_factory.mktemp("guide")
    for name, text in FILE.findall(GUIDE):
        (made / name).write_text(text)
    return made


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, cwd=folder
    )


def test_every_block_is_a_file_or_commands(folder):
    kinds = [kind for kind, _ in BLOCK.findall(GUIDE)]
    assert set(kinds) == {"py", "cpp", "sh"}
    assert kinds.count("py") + kinds.count("cpp") == len(list(folder.iterdir()))


@pytest.mark.long
def test_the_operator_of_the_guide_passes(folder):
    # With the program of the guide, which reads the report.
    words = ["weighted_square.py", "--check", FEW, "--examples", "24"]
    done = run(folder, "failures.py", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == ""


@pytest.mark.long
def test_the_program_that_reads_failures_prints_code_message_case_and_command(folder):
    wrong = (
        folder / "spec.py"
    ).read_text() + "\n\n@halve.register_kernel('cpu')\ndef _(x):\n    return x * 3\n"
    (folder / "wrong.py").write_text(wrong.replace("judged::halve", "judged::wrong"))
    done = run(folder, "failures.py", "wrong.py", "--check", "reference", "--examples", "6")
    assert done.returncode == 1, done.stderr
    first, message, case, command = done.stdout.splitlines()
    assert first == "OPS-VALUE-WRONG judged::wrong reference"
    assert message.startswith("  the result[0] is ")
    assert case.startswith("  x: float32 (1,) [")
    assert command.startswith("  opsmith check wrong.py --check reference --seed 0")


@pytest.mark.long  # checks four declarations in a process of its own
def test_what_is_declared_can_be_declared_and_sampled(folder):
    # In a process of its own: what a page declares stays declared.
    script = (
        "import declared, opsmith.testing\n"
        "operators = [declared.kinds, declared.clear, declared.positive, declared.segment_sums]\n"
        "opsmith.testing.check(operators, select=['reference', 'validation'], examples=6)\n"
    )
    done = run(folder, "-c", script)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_the_commands_of_the_guide_do_what_it_says(folder, cli, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    assert len([line for line in COMMANDS if line]) == 7
    for command in filter(None, COMMANDS):
        if command.startswith("opsmith check weighted_square.py"):
            continue  # test_the_operator_of_the_guide_passes
        words = command.split()[1:]
        if words[0] == "judge":
            # In a process of its own: other tests declare operators in a module spec, too.
            judged = run(folder, "-m", "opsmith", *words, "--examples", "4")
            assert judged.returncode == 0, judged.stdout + judged.stderr
            said = json.loads(judged.stdout)
            assert (said["schema"], said["accepted"]) == ("opsmith.report/1", True)
            continue
        done = cli(*words)
        assert done.code == 0, done.stderr


def test_every_code_that_the_guide_names_is_there():
    named = set(re.findall(r"OPS(?:-[A-Z]+)+", GUIDE))
    assert named
    assert named <= set(catalogue())


def test_the_command_prints_the_page_which_stands_once(cli):
    outcome = cli("guide")
    assert outcome.code == 0
    assert outcome.stdout == GUIDE
    assert (REPOSITORY / "opsmith" / "guide.md").is_symlink()
