import subprocess
import sys


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)


def test_help_answers_without_torch():
    script = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "sys.argv = ['opsmith', '--help']\n"
        "from opsmith.cli import main\n"
        "main()\n"
    )
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
