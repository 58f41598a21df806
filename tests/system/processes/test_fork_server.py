"""A fork in a sandbox is as closed as a new program there, without the time for its imports."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from opsmith.system.processes.sandbox import enter, fork_client
from opsmith.system.processes.sandbox.fork_client import (
    ForkedIntoSandbox,
    ForkServer,
    ForkServerError,
    kept_server,
)
from opsmith.system.processes.sandbox.policy import Box, Boxed, unavailable

pytestmark = pytest.mark.skipif(bool(unavailable()), reason=unavailable())

#: Prints what a process can find out about itself and its surroundings; then exits with 7.
REPORT = """
import json, os, signal, sys
status = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines())
names = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Groups")
found = {name: status[name].strip() for name in (*names, "SigIgn", "SigBlk", "Threads", "Umask")}
found["descriptors"] = sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1]
found["first"] = open("/proc/1/cmdline").read().strip("\\0")
found["own"] = open("/proc/self/cmdline").read().split("\\0")[0]
found["name"] = status["Name"]
found["maps"] = bool(open("/proc/self/maps").read())
found["leads"] = os.getsid(0) == os.getpid()
found["network"] = len(open("/proc/net/dev").read().splitlines())
found["processes"] = len([name for name in os.listdir("/proc") if name.isdigit()])
found["folder"] = os.getcwd()
found["environment"] = dict(os.environ)
for path in ("/usr/planted", "/proc/sys/kernel/domainname"):
    try:
        open(path, "w")
    except OSError as error:
        found[path] = error.errno
try:
    os.kill(1, signal.SIGKILL)
except OSError as error:
    found["kill"] = error.errno
print(json.dumps(found), flush=True)
sys.stdout.flush()
os._exit(7)
"""


@pytest.fixture
def server(tmp_path):
    """Yield a function that starts a server for a module: what it imports, and what forks run."""
    started = []

    def start(text: str, imported: str = "") -> ForkServer:
        (tmp_path / "forked.py").write_text(
            f"{imported}\nif __name__ == '__main__':\n{indented(text)}\n"
        )
        environment = {**kept_variables(), "PYTHONPATH": f"{tmp_path}{os.pathsep}{SOURCES}"}
        started.append(ForkServer("forked", environment))
        return started[-1]

    yield start
    for one in started:
        one.end()


SOURCES = Path(enter.__file__).parents[4]


def kept_variables() -> dict[str, str]:
    return {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}


def indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def forked(server: ForkServer, folder: Path) -> tuple[str, dict[str, object]]:
    """Run a fork in a sandbox; return what it printed, and how it ended."""
    with tempfile.TemporaryFile() as output, open(os.devnull) as null:
        process = ForkedIntoSandbox(server, Box(True, folder), (), null.fileno(), output.fileno())
        ended = process.ended()
        output.seek(0)
        return output.read().decode(), ended


def test_a_fork_finds_what_a_new_program_finds(server, tmp_path):
    found = server(REPORT)
    with tempfile.TemporaryDirectory() as folder:
        printed, ended = forked(found, Path(folder))
        assert ended == {"code": 7}, printed
        of_fork = json.loads(printed)
        script = tmp_path / "script.py"
        script.write_text(REPORT)
        with tempfile.TemporaryFile() as output:
            process = Boxed(
                Box(True, Path(folder), {tmp_path: tmp_path}),
                [sys.executable, str(script)],
                found.environment,
                stdout=output.fileno(),
            )
            assert process.ended() == {"code": 7}
            output.seek(0)
            of_program = json.loads(output.read())
    assert of_fork == of_program
    assert of_fork["CapEff"] == of_fork["CapBnd"] == "0000000000000000"
    assert of_fork["Seccomp"] == "2"
    assert of_fork["descriptors"] == [0, 1, 2]
    assert of_fork["first"] == "sh"


def test_the_module_is_imported_once(server, tmp_path):
    (tmp_path / "slow.py").write_text("import os\nimported_by = os.getpid()\n")
    found = server("print(slow.imported_by)", "import slow")
    with tempfile.TemporaryDirectory() as folder:
        printed = [forked(found, Path(folder))[0] for _ in range(2)]
    assert printed[0] == printed[1]


def test_an_exception_ends_the_fork_alone(server):
    found = server("raise ValueError('on purpose')")
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            printed, ended = forked(found, Path(folder))
            assert ended == {"code": 1}
            assert "ValueError: on purpose" in printed
    assert found.running()


def test_a_killed_fork_leaves_nothing(server):
    found = server("import os, time\nif not os.fork():\n    time.sleep(600)\ntime.sleep(600)")
    with tempfile.TemporaryDirectory() as folder, open(os.devnull) as null:
        process = ForkedIntoSandbox(
            found, Box(True, Path(folder)), (), null.fileno(), null.fileno()
        )
        inside = []
        while len(inside) < 3:  # the first process of the sandbox, the fork, and its own fork
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.05)
            inside = enter.descendants(process.pid)
        process.kill()
        process.wait(30)
        require_gone(inside)


def test_forks_end_with_the_server(server):
    found = server("import time\ntime.sleep(600)")
    with tempfile.TemporaryDirectory() as folder, open(os.devnull) as null:
        process = ForkedIntoSandbox(
            found, Box(True, Path(folder)), (), null.fileno(), null.fileno()
        )
        inside = enter.descendants(process.pid)
        found.end()
        process.wait(30)
        require_gone([process.pid, *inside])


def test_the_server_ends_with_its_process(tmp_path):
    script = (
        "import os, sys\n"
        "from opsmith.system.processes.sandbox.fork_client import ForkServer\n"
        f"server = ForkServer('json', dict(os.environ, PYTHONPATH={str(SOURCES)!r}))\n"
        "print(server._process.pid, flush=True)\n"
        "os._exit(3)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    require_gone([int(done.stdout)])


def require_gone(processes: list[int]) -> None:
    deadline = time.monotonic() + 60
    while any(is_alive(one) for one in processes):
        assert time.monotonic() < deadline, processes
        time.sleep(0.05)


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_server_that_ended_is_named_with_what_it_said(server):
    found = server("pass", "raise SystemExit('the module ends its process')")
    with tempfile.TemporaryDirectory() as folder, pytest.raises(ForkServerError) as error:
        forked(found, Path(folder))
    assert str(error.value) == (
        "the process that imports forked ended, or took longer than 120 s; it said:\n"
        "the module ends its process"
    )


def test_one_server_is_kept_until_it_ends_or_another_is_needed(monkeypatch):
    monkeypatch.setattr(fork_client, "_kept", None)
    environment = {**kept_variables(), "PYTHONPATH": str(SOURCES)}
    first = kept_server("json", environment)
    assert kept_server("json", environment) is first
    os.kill(first._process.pid, signal.SIGKILL)
    first._process.wait()
    second = kept_server("json", environment)
    assert second is not first
    assert second.running()
    third = kept_server("json", {**environment, "LANG": "C"})
    assert not second.running()
    third.end()
