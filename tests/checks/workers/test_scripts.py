"""Files that run checks while they are imported: each ends, and is checked as it is written."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

#: Where a reference was called, beside the process that runs the script.
HEAD = """
import os
import opsmith
from jaxtyping import Float
from opsmith import checks
from torch import Tensor

CALLED = os.environ["CALLED"]

@opsmith.op("scripted::{name}")
def {name}(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    with open(CALLED, "a") as file:
        print(os.getpid(), file=file)
    return x * 2

def report_of(operator):
    return checks.run(operator, select=["dispatch"], examples=1)
"""


def _run(folder: Path, *command: str, code: int = 0) -> tuple[str, str]:
    """Run a command in a folder that has to end; return what it printed."""
    started = subprocess.Popen(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "CALLED": str(folder / "called"), "PYTHONPATH": ""},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        out, err = started.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        # Its workers end with their parent.
        os.killpg(started.pid, signal.SIGKILL)
        raise
    print(out, err)
    assert started.returncode == code
    return out, err


def _write(folder: Path, file: str, *parts: str, name: str = "twice") -> None:
    text = "".join(map(textwrap.dedent, parts))
    (folder / file).write_text(text.replace("{name}", name))


def _places(folder: Path) -> set[str]:
    """Return the processes that called a reference."""
    return set((folder / "called").read_text().split())


def test_a_script_that_checks_at_its_top_level_is_checked_in_another_process(tmp_path):
    tail = """
    import sys
    assert sys.argv[1:] == ["--flag"], sys.argv
    print(os.getpid())
    try:
        print(report_of({name}).summary())
    except Exception:
        raise SystemExit("an import that ends is no error of the script's")
    sys.exit(3)
    """
    _write(tmp_path, "script.py", HEAD, tail)
    out, _ = _run(tmp_path, "script.py", "--flag", code=3)
    pid, summary = out.splitlines()
    assert summary.startswith("1 operator: 1 passed")
    assert _places(tmp_path)
    assert pid not in _places(tmp_path)


def test_what_is_declared_after_a_run_is_checked_too(tmp_path):
    later = HEAD.replace("{name}", "later")
    _write(tmp_path, "script.py", HEAD, "assert report_of(twice).ok\n", later)
    with (tmp_path / "script.py").open("a") as file:
        file.write("print(report_of(later).summary(), report_of([twice, later]).summary())\n")
    out, _ = _run(tmp_path, "script.py")
    assert "1 operator: 1 passed" in out
    assert "2 operators: 2 passed" in out


# Most of it is stated by `test_a_script_that_checks_at_its_top_level_…`.
@pytest.mark.long
def test_a_file_that_handles_everything_ends_too(tmp_path):
    tail = """
    for _ in range(3):
        try:
            print(report_of({name}).summary())
        except:
            pass
    """
    _write(tmp_path, "script.py", HEAD, tail)
    assert _run(tmp_path, "script.py")[0].count("1 passed") == 3


# Most of it is stated by `test_a_script_that_checks_at_its_top_level_…`.
@pytest.mark.long
def test_a_module_that_checks_while_a_script_imports_it_ends_too(tmp_path):
    _write(tmp_path, "module.py", HEAD, "print(report_of({name}).summary())\n")
    own = HEAD.replace("{name}", "other")
    _write(tmp_path, "script.py", own, "import module\nprint(report_of(other).summary())\n")
    assert _run(tmp_path, "script.py")[0].count("1 passed") == 2


# Most of it is stated by `test_a_script_that_checks_at_its_top_level_…`.
@pytest.mark.long
def test_a_cell_of_a_notebook_checks_a_file_that_checks_itself(tmp_path):
    import nbformat
    from nbclient import NotebookClient

    _write(tmp_path, "module.py", HEAD, "report_of({name})\n")
    cells = [
        "import os; os.environ['CALLED'] = 'called'",
        "import module\nprint(module.report_of(module.twice).summary())",
        "print(checks.run(thrice, select=['dispatch'], examples=1).summary())",
    ]
    cells.insert(2, HEAD.replace("{name}", "thrice"))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(one) for one in cells])
    resources = {"metadata": {"path": str(tmp_path)}}
    client = NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources)
    client.execute()
    for position in (1, 3):
        assert "1 passed" in notebook.cells[position].outputs[0].text


def test_a_file_of_tests_that_checks_while_pytest_collects_it(tmp_path):
    tail = """
    import opsmith.testing
    opsmith.testing.check({name}, select=["dispatch"], examples=1, isolate=True)
    REPORT = report_of({name})

    def test_it():
        assert REPORT.ok
        opsmith.testing.check({name}, select=["dispatch"], examples=1, isolate=True)
    """
    _write(tmp_path, "test_it.py", HEAD, tail)
    assert "1 passed" in _run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider")[0]


def test_the_command_line_checks_what_stands_above_and_says_so(tmp_path):
    _write(tmp_path, "script.py", HEAD, "print(report_of({name}))\n", "raise KeyError\n")
    check = ("-m", "opsmith", "check", "--check", "dispatch", "--examples", "1")
    out, err = _run(tmp_path, *check, "script.py")
    assert "1 operator: 1 passed" in out
    assert (
        f"{tmp_path / 'script.py'}:18: RuntimeWarning: opsmith.checks.run is called while this "
        "file is imported, which ends the import here. Put the call below if __name__ == "
        '"__main__":' in err
    )
    _write(tmp_path, "outer.py", "import script\n", HEAD, name="outer")
    _, err = _run(tmp_path, *check, "outer.py", code=2)
    assert "script.py:17: opsmith.checks.run is called while this file is imported" in err


def test_a_specification_that_judges_itself_is_judged(tmp_path):
    tail = """
    from opsmith.judge import judge
    print(judge(__file__, "kernels.py", seed=0, examples=1, trust_candidate=True).outcome)
    """
    _write(tmp_path, "spec.py", HEAD.replace('CALLED = os.environ["CALLED"]', ""), tail)
    text = (tmp_path / "spec.py").read_text()
    lines = [line for line in text.splitlines() if "CALLED" not in line and "print(os" not in line]
    (tmp_path / "spec.py").write_text("\n".join(lines) + "\n")
    kernel = """
    from spec import {name}

    @{name}.register_kernel("cpu")
    def kernel(x):
        return x + x
    """
    _write(tmp_path, "kernels.py", kernel)
    assert _run(tmp_path, "spec.py")[0].splitlines()[-1] == "accepted"


def test_a_script_that_times_at_its_top_level_is_timed(tmp_path):
    tail = """
    from opsmith import bench
    {name}.register_sizes({"N": 8})
    only = bench.run({name}, only=["reference"], rounds=1, seconds=1)
    print([one.name for one in only.figures])
    """
    _write(tmp_path, "script.py", HEAD, tail)
    assert "['reference'" in _run(tmp_path, "script.py")[0]
