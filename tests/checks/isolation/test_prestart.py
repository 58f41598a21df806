"""Processes that were started before there was anything to check are those that check."""

import subprocess
import sys
import time
from pathlib import Path

import faults_endings as endings
import pytest

from opsmith import checks
from opsmith.checks.isolation import prestart
from opsmith.checks.workers import worker_pool
from opsmith.checks.workers.worker_client import Worker
from opsmith.system.processes.sandbox.policy import unavailable


@pytest.fixture(autouse=True)
def _keeps_none(monkeypatch):
    monkeypatch.setattr(worker_pool, "_keeps", False)
    worker_pool._end()


def started() -> list[int]:
    return [one.process.pid for one, _ in prestart._begun]


def is_there(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


@pytest.mark.slow
def test_a_run_takes_what_was_started_ahead(monkeypatch):
    ran = []
    original = Worker.run

    def run(self, *others, **more):
        row = original(self, *others, **more)
        ran.append(self._process.pid)
        return row

    monkeypatch.setattr(Worker, "run", run)
    with prestart.begun(1):
        (process,) = started()
        report = checks.run(endings.double, select=["mutation"], examples=2)
        assert report.ok, report.explain()
        assert set(ran) == {process}
        assert not started()
    assert not is_there(process), "it ends with the run, like any other"


def test_what_nobody_took_ends_and_leaves_no_file():
    with prestart.begun(2):
        processes = started()
        folders = [one.folder for one, _ in prestart._begun]
        assert len(processes) == 2
        assert all(map(is_there, processes))
    assert not any(map(is_there, processes))
    assert not any(folder.exists() for folder in folders)


def test_what_was_started_in_another_environment_is_not_taken(monkeypatch):
    with prestart.begun(2):
        processes = started()
        monkeypatch.setenv("ANOTHER", "1")
        assert prestart.take() is None
        assert not any(map(is_there, processes))


def test_it_ends_with_who_started_it():
    script = (
        "import os\n"
        "from opsmith.checks.isolation import prestart as ahead\n"
        "with ahead.begun(1):\n"
        "    print(ahead._begun[0][0].process.pid, flush=True)\n"
        "    os._exit(3)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr
    process = int(done.stdout)
    for _ in range(600):
        if not is_there(process):
            return
        time.sleep(0.05)
    pytest.fail("the process is still there")


@pytest.mark.parametrize(
    ("starts", "words"),
    [
        ("begun", ["check", "any.py"]),
        ("begun", ["check", "--quick", "--device=cpu", "any.py"]),
        ("begun", ["check", "--sanitize=address", "any.py"]),
        ("begin_candidates", ["judge", "any.py", "--candidate=other.py"]),
    ],
)
def test_the_command_imports_no_torch_before_it_starts_processes_that_do(starts, words):
    script = f"""
import sys
sys.modules["torch"] = None
from opsmith.checks.isolation import prestart
def started(*numbers):
    sys.exit("they are started now")
prestart.{starts} = started
sys.argv = ["opsmith", *{words}]
from opsmith.cli import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stderr == "they are started now\n"


@pytest.mark.slow
@pytest.mark.skipif(bool(unavailable()), reason=f"no sandbox here: {unavailable()}")
def test_the_candidate_of_a_judge_runs_in_a_fork_of_what_was_started_ahead(tmp_path):
    kernels = tmp_path / "kernels.py"
    kernels.write_text("raise ValueError('it was imported')\n")
    spec = Path(__file__).parents[2] / "judge" / "spec.py"
    program = tmp_path / "program" / "main.py"
    program.parent.mkdir()
    program.write_text(f"""
import sys
from opsmith.system.processes.sandbox import fork_client
class Counted(fork_client.ForkServer):
    def __init__(self, *given):
        print("started")
        super().__init__(*given)
fork_client.ForkServer = Counted
sys.argv = ["opsmith", "judge", {str(spec)!r}, "--candidate", {str(kernels)!r}]
from opsmith.cli import main
main()
""")
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "it was imported" in done.stdout
    assert done.stdout.count("started") == 1
