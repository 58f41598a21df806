"""What the README shows is what happens."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
FILES = re.compile(r"^`(\w+\.(?:py|cpp))`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OUTPUT = re.compile(r"^prints .*?:\n\n```\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def first_operator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a reader of the README has after copying its files."""
    folder = tmp_path_factory.mktemp("first")
    files = dict(FILES.findall(README.read_text()))
    assert set(files) == {"scale_rows.py", "scale_rows.cpp", "use.py"}
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=folder
    )


@pytest.mark.slow
def test_the_first_operator_runs_and_prints_what_is_promised(first_operator):
    done = run(first_operator, "use.py")
    assert done.returncode == 0, done.stderr
    (promised,) = OUTPUT.findall(README.read_text())
    assert done.stdout == promised


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", [["--quick"], pytest.param([], marks=pytest.mark.long)], ids=["quick", "whole"]
)
def test_the_first_operator_passes_its_checks(first_operator, how):
    done = run(first_operator, "-m", "opsmith", "check", "scale_rows.py", *how)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_is_ten_lines(first_operator):
    lines = (first_operator / "scale_rows.py").read_text().splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 10


def test_the_first_sixty_lines_answer_what_a_newcomer_asks():
    """The questions: what it is, why not plain PyTorch, what it finds, how fast, how to start."""
    lines = README.read_text().splitlines()
    assert len(lines) <= 120
    top = "\n".join(lines[:60])
    for answer in (
        "**Declare your PyTorch operator once.",
        "**Why not `torch.library` alone?**",
        "**What does it find?**",
        "**How fast is it?**",
        "## Start",
        "pip install ",
        "@opsmith.op(",
    ):
        assert answer in top
