import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=REPOSITORY
    )


def test_help_needs_no_torch():
    # Of the package itself only what the command line asks of it: a bare stand-in takes its place.
    script = """
import sys, types
package = types.ModuleType("opsmith")
package.__path__ = ["opsmith"]
sys.modules["opsmith"] = package
sys.modules["torch"] = None
sys.argv = ["opsmith", "--help"]
from opsmith.cli import main
main()
"""
    done = run("-c", script)
    assert done.returncode == 0, done.stderr
    for command in ("new", "doctor", "build", "check"):
        assert command in done.stdout


def test_python_m_opsmith_is_the_same_command():
    import opsmith

    assert run("-m", "opsmith", "--version").stdout == f"opsmith {opsmith.__version__}\n"


def test_an_unknown_command_is_a_usage_error(cli):
    outcome = cli("frobnicate")
    assert outcome.code == 2
    assert "frobnicate" in outcome.stderr
