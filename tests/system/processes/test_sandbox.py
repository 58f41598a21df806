"""A command finds in the sandbox what its plan shows, and nothing else."""

import contextlib
import ctypes
import errno
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from opsmith.system.processes.sandbox import enter, seccomp
from opsmith.system.processes.sandbox.policy import Box, Boxed, unavailable

BOXED = pytest.param(
    True, id="namespaces", marks=pytest.mark.skipif(bool(unavailable()), reason=unavailable())
)
ENVIRONMENT = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}


def ran(command: str, namespaces: bool = True, **options: object) -> tuple[str, dict[str, object]]:
    """Run a shell command in a sandbox; return what it printed, and how it ended."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryDirectory() as folder:
        box = Box(namespaces, Path(folder), **options)
        process = Boxed(box, ["/bin/sh", "-c", command], ENVIRONMENT, stdout=output.fileno())
        ended = process.ended()
        output.seek(0)
        return output.read().decode(), ended


def test_this_machine_says_whether_it_has_one():
    assert isinstance(unavailable(), str)
    if sys.platform.startswith("linux") and Path("/proc/sys/user/max_user_namespaces").exists():
        allowed = subprocess.run(
            ["unshare", "--user", "--mount", "--pid", "--fork", "true"], capture_output=True
        )
        if allowed.returncode == 0:
            assert unavailable() == ""


@pytest.mark.parametrize("namespaces", [BOXED, False])
def test_a_command_ends_with_its_code_and_nothing_is_left(namespaces):
    seconds = f"543.{os.getpid()}"  # no other test sleeps for so long
    started = time.monotonic()
    printed, ended = ran(f"echo hello; sleep {seconds} & exit 7", namespaces)
    assert (printed, ended) == ("hello\n", {"code": 7})
    assert time.monotonic() - started < 300
    left = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # another process, which ended
            left += [path] if f"sleep\0{seconds}\0".encode() in path.read_bytes() else []
    assert left == []


@pytest.mark.parametrize("namespaces", [BOXED, False])
def test_a_command_has_no_privileges_and_a_filter(namespaces):
    printed, _ = ran("grep -E 'CapEff|CapBnd|NoNewPrivs|Seccomp:' /proc/self/status", namespaces)
    assert printed.split() == (
        "CapEff: 0000000000000000 CapBnd: 0000000000000000 NoNewPrivs: 1 Seccomp: 2".split()
    )


@pytest.mark.parametrize("namespaces", [BOXED, False])
def test_a_command_has_the_limits_of_a_plain_process_but_for_those_of_the_page(namespaces):
    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    limits = ", ".join(f"{name!r}: resource.getrlimit(resource.{name})" for name in names)
    script = shlex.quote(f"import resource; print({{{limits}}})")
    said, _ = ran(f"{sys.executable} -c {script}", namespaces)
    found = eval(said)
    plain = {name: resource.getrlimit(getattr(resource, name)) for name in names}
    plain["RLIMIT_CORE"] = (0, plain["RLIMIT_CORE"][1])  # as most systems begin with
    other = {name: found[name] for name in names if found[name] != plain[name]}
    expected = {"RLIMIT_FSIZE": (1 << 30, 1 << 30)}
    assert other == expected | ({"RLIMIT_NPROC": (512, 512)} if namespaces else {})
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "judge.md").read_text()
    assert "`RLIMIT_NPROC` (512) and `RLIMIT_FSIZE` (1 GiB)" in page


@pytest.mark.parametrize("namespaces", [BOXED])
def test_a_command_sees_its_own_processes_and_a_read_only_system(namespaces):
    command = (
        "ls /proc | grep -c '^[0-9]'; cat /proc/net/dev | wc -l; "
        "(echo 1 > /usr/planted || echo 1 > /etc/planted || echo 1 > /proc/sys/kernel/domainname) "
        "2>&1 | grep -c 'Read-only'; "
        "echo 1 > here && cat here; kill -9 1; unshare -U true 2>/dev/null || echo no namespaces; "
        "tr '\\0' ' ' < /proc/1/cmdline"
    )
    printed, ended = ran(command, namespaces)
    lines = printed.splitlines()
    assert ended == {"code": 0}
    assert int(lines[0]) <= 6
    assert lines[1:] == ["3", "3", "1", "no namespaces", "sh " + " " * (len(lines[-1]) - 3)]


@pytest.mark.parametrize("namespaces", [BOXED])
def test_files_of_others_are_hidden_and_what_is_shown_cannot_be_written(namespaces, tmp_path):
    (tmp_path / "secret").write_text("hidden")
    command = f"cd {tmp_path}; ls; cat shown/file; echo 1 > shown/file || echo no"
    (tmp_path / "copy" / "shown").mkdir(parents=True)
    (tmp_path / "copy" / "shown" / "file").write_text("seen")
    printed, _ = ran(command, namespaces, placed={tmp_path: tmp_path / "copy"})
    lines = printed.splitlines()
    assert lines[0] == "shown"
    assert lines[1].startswith("seen")
    assert lines[-1] == "no"
    assert (tmp_path / "copy" / "shown" / "file").read_text() == "seen"


@pytest.mark.parametrize("namespaces", [BOXED, False])
def test_everything_together_may_take_so_much_memory(namespaces):
    script = "x = bytearray(1 << 28); import time; time.sleep(600)"
    python = Path(sys.executable).resolve()
    command = f"{python} -c '{script}' & {python} -c '{script}' & wait"
    _, ended = ran(command, namespaces, memory=400 << 20)
    assert ended == {"exceeded": "memory"}


@pytest.mark.parametrize("namespaces", [False])
def test_without_namespaces_the_judge_gets_no_signal(namespaces):
    command = f"kill -9 {os.getpid()} || kill -19 {os.getpid()} || kill -9 -1; echo $?"
    printed, ended = ran(command, namespaces)
    assert printed.endswith("1\n")
    assert ended == {"code": 0}


@pytest.mark.parametrize("namespaces", [BOXED, False])
def test_it_ends_with_who_started_it(namespaces, tmp_path):
    script = (
        "import os, sys\nfrom pathlib import Path\n"
        "from opsmith.system.processes.sandbox.policy import Box, Boxed\n"
        f"box = Box({namespaces}, Path({str(tmp_path)!r}))\n"
        "process = Boxed(box, ['/bin/sh', '-c', 'exec sleep 432'], {})\n"
        "from opsmith.system.processes.sandbox.enter import descendants\n"
        "import time\n"
        "while not any('432' in Path(f'/proc/{one}/cmdline').read_text()\n"
        "              for one in descendants(process.pid)):\n    time.sleep(0.05)\n"
        "print(process.pid, *descendants(process.pid), flush=True)\n"
        "os._exit(3)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    processes = done.stdout.split()
    assert len(processes) >= 3
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{one}").exists() for one in processes):
        assert time.monotonic() < deadline, processes
        time.sleep(0.05)


def test_an_id_inside_is_found_outside():
    namespaces = not unavailable()
    with tempfile.TemporaryDirectory() as folder:
        given, told = os.pipe()
        process = Boxed(
            Box(namespaces, Path(folder)), ["/bin/sh", "-c", "echo $$; sleep 60"], {}, stdout=told
        )
        os.close(told)
        with os.fdopen(given) as printed:
            inside = int(printed.readline())
        outside = process.outside(inside)
        assert outside in enter.descendants(process.pid)
        assert namespaces == (outside != inside)
        assert process.outside(999_999) is None
        process.kill()
        # The first process may have noted the end of its command, before it was killed itself.
        assert process.ended().get("code") in (None, -9)


def test_the_filter_is_a_list_of_instructions_for_this_machine():
    plain, sparing = seccomp.program(), seccomp.program([123])
    assert len(plain) % 8 == 0
    assert len(sparing) > len(plain)
    assert len(sparing) // 8 < 4096
    assert json.dumps(list(plain[:8])) == "[32, 0, 0, 0, 4, 0, 0, 0]"


def test_a_used_up_limit_of_namespaces_is_named(monkeypatch):
    def unshare(flags):
        ctypes.set_errno(errno.ENOSPC)
        return -1

    monkeypatch.setattr(enter, "_libc", SimpleNamespace(unshare=unshare))
    with pytest.raises(enter.SandboxError, match=r"as many as user\.max_user_namespaces allows"):
        enter._unshare()


@pytest.mark.parametrize("namespaces", [BOXED])
def test_ids_of_processes_follow_a_given_one(namespaces):
    printed, _ = ran("echo $$", namespaces, last_id=4710)
    assert printed == "4711\n"
