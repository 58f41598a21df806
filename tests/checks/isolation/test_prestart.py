"""Workers are forked ahead, from a process that has imported everything and computed nothing."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from opsmith.system.processes.sandbox.policy import unavailable

FAULTS = Path(__file__).parents[2] / "faults"
AHEAD = """
import os, sys
from pathlib import Path
from opsmith.checks import worker_server
from opsmith.checks.isolation import prestart
from opsmith.checks.workers.worker_client import Worker

def started():
    return [one._process.pid for one, _ in prestart._begun]

def is_there(process):
    return Path(f"/proc/{process}").exists()

worker_server.import_all()
"""


def run(script: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-c", AHEAD + script],
        env={**os.environ, "PYTHONPATH": str(FAULTS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_run_takes_what_was_started_ahead():
    run("""
ran = []
original = Worker.run

def run(self, *others, **more):
    row = original(self, *others, **more)
    ran.append(self._process.pid)
    return row

Worker.run = run
with prestart.begun(1, worker_server.be_template):
    (process,) = started()
    import faults_endings as endings
    from opsmith import checks
    report = checks.run(endings.double, select=["mutation"], examples=2)
    assert report.ok, report.explain()
    assert set(ran) == {process}
    assert not started()
assert not is_there(process), "it ends with the run, like any other"
""")


def test_what_nobody_took_ends_and_leaves_no_file():
    run("""
with prestart.begun(3, worker_server.be_template):
    processes = started()
    folders = [one.folder for one, _ in prestart._begun]
    assert len(processes) == 3
    assert all(map(is_there, processes))
assert not any(map(is_there, processes))
assert not any(folder.exists() for folder in folders)
""")


def test_none_of_several_holds_the_pipe_of_another_and_keeps_it_alive():
    run("""
with prestart.begun(3, worker_server.be_template):
    pipes = {os.readlink(f"/proc/self/fd/{one.descriptors[0]}"): one for one, _ in prestart._begun}
    for one, _ in prestart._begun:
        folder = Path(f"/proc/{one._process.pid}/fd")
        one.make_ready()  # it says so after it closed what is not its own
        held = {os.readlink(path) for path in folder.iterdir()} & set(pipes)
        assert [pipes[pipe] for pipe in held] == [one], held
""")


def test_what_was_started_in_another_environment_is_not_taken():
    run("""
with prestart.begun(2, worker_server.be_template):
    processes = started()
    os.environ["ANOTHER"] = "1"
    assert prestart.take() is None
    assert not any(map(is_there, processes))
""")


def test_it_ends_with_who_started_it():
    processes = run(
        """
with prestart.begun(2, worker_server.be_template):
    print(*started(), flush=True)
    os._exit(3)
""",
        code=3,
    )
    for process in processes.split():
        for _ in range(600):
            if not Path(f"/proc/{process}").exists():
                break
            time.sleep(0.05)
        else:
            pytest.fail("the process is still there")


def test_a_process_with_threads_is_told_from_one_without():
    run("""
import threading
assert not worker_server.started_threads()
end = threading.Event()
threading.Thread(target=end.wait).start()
assert worker_server.started_threads()
end.set()
""")


def test_threads_that_computing_started_end_before_a_fork_and_start_again():
    run("""
import torch
x = torch.rand(8, 64, 300)
right = torch.avg_pool1d(x, 3, 1)
assert worker_server._threads() > 1 or torch.get_num_threads() == 1
assert not worker_server.started_threads()
child = os.fork()
if child == 0:
    os._exit(0 if torch.avg_pool1d(x, 3, 1).equal(right) else 1)
assert os.waitpid(child, 0)[1] == 0
assert torch.avg_pool1d(x, 3, 1).equal(right)
""")


CALLS = """
import opsmith
from jaxtyping import Float32
from torch import Tensor

@opsmith.op("ahead::twice")
def twice(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2

@twice.register_kernel("cpu")
def kernel(x):
    return x + x
"""


@pytest.mark.slow
def test_a_check_imports_torch_once_and_starts_no_other_python(tmp_path):
    operator = tmp_path / "twice.py"
    operator.write_text(CALLS)
    program = f"""
import subprocess, sys
commands = []
start = subprocess.Popen.__init__
def counted(self, command, *others, **more):
    open({str(tmp_path / "commands")!r}, "a").write(f"{{command}}\\n")
    start(self, command, *others, **more)
subprocess.Popen.__init__ = counted
sys.argv = ["opsmith", "check", "--quick", {str(operator)!r}]
from opsmith.cli import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    commands = tmp_path / "commands"
    commands = commands.read_text().splitlines() if commands.exists() else []
    others = [line for line in commands if "python" in line and "watchdog.py" not in line]
    assert others == []


def test_the_judge_imports_no_torch_before_it_starts_processes_that_do():
    script = """
import sys
sys.modules["torch"] = None
from opsmith.checks.isolation import prestart
def started(*numbers):
    sys.exit("they are started now")
prestart.begin_candidates = started
sys.argv = ["opsmith", "judge", "any.py", "--candidate=other.py"]
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
