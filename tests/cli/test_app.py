import subprocess
import sys
from pathlib import Path

import pytest

from opsmith.errors import LoadError

REPOSITORY = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=REPOSITORY
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--help"], ["new", "doctor", "build", "check"]),
        (["--version"], ["opsmith 0."]),
        (["explain", "OPS-LAYOUT-STRIDE"], ["strides"]),
        (["guide"], ["opsmith judge"]),
    ],
)
def test_what_needs_no_torch_answers_without_it(arguments, said):
    script = f"""
import sys
sys.modules["torch"] = None
sys.argv = ["opsmith", *{arguments}]
from opsmith.cli import main
main()
"""
    done = run("-c", script)
    assert done.returncode == 0, done.stderr
    for text in said:
        assert text in done.stdout


def test_python_m_opsmith_is_the_same_command():
    import opsmith

    assert run("-m", "opsmith", "--version").stdout == f"opsmith {opsmith.__version__}\n"


@pytest.mark.parametrize(("command", "code"), [("--version", 0), ("frobnicate", 2)])
def test_a_command_looks_for_no_garbage_at_its_end_and_ends_as_every_python(command, code):
    script = f"""
import atexit, gc, sys
atexit.register(lambda: print(gc.get_freeze_count() > 1000))
sys.argv = ["opsmith", {command!r}]
from opsmith.cli import main
main()
"""
    done = run("-c", script)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (code, "True")


def test_an_unknown_command_is_a_usage_error(cli):
    outcome = cli("frobnicate")
    assert outcome.code == 2
    assert "frobnicate" in outcome.stderr


@pytest.mark.parametrize("command", ["build", "check"])
def test_a_file_that_raises_is_said_in_one_line_and_exits_with_2(
    cli, command, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raising_a.py").write_text("1 / 0\n")
    outcome = cli(command, "raising_a.py")
    assert outcome.code == 2
    assert outcome.stderr == "error: raising_a.py:1: ZeroDivisionError: division by zero\n"
    assert outcome.stdout == ""


def test_debug_shows_the_traceback(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raising_b.py").write_text("1 / 0\n")
    with pytest.raises(LoadError) as raised:
        cli("build", "raising_b.py", "--debug")
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
