"""A process of opsmith that is killed: nothing that it started goes on, and nothing stays."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opsmith.system import scratch, watchdog
from opsmith.system.progress import run
from opsmith.system.scratch import scratch_folder

#: Starts what starts another in a process group of its own, as Ninja does, and waits for it.
_BUILDS = """
import os, sys, threading
from opsmith.system.progress import run
from opsmith.system.scratch import scratch_folder

def build():
    with scratch_folder("killed") as folder:
        (folder / "half").write_text("half")
        command = 'setsid sh -c "echo \\\\$\\\\$ > $0; exec sleep 600" & echo $$ > $1; wait'
        files = [str(folder.parent / name) for name in ("grandchild", "child")]
        run(["sh", "-c", command, *files], os.environ, "building")

if sys.argv[1] == "thread":
    # Somebody else's thread that is done: the one that started the compiler ends too.
    thread = threading.Thread(target=build)
    thread.start()
    thread.join()
else:
    build()
"""


@pytest.fixture
def building(tmp_path: Path) -> Iterator[Callable[[str], tuple[subprocess.Popen[bytes], set[int]]]]:
    """Starts a process that builds, and gives it with whom it started."""
    started = []

    def start(where: str) -> tuple[subprocess.Popen[bytes], set[int]]:
        process = subprocess.Popen(
            [sys.executable, "-c", _BUILDS, where], env={**os.environ, "TMPDIR": str(tmp_path)}
        )
        started.append(process)
        files = [tmp_path / name for name in ("child", "grandchild")]
        assert _soon(lambda: all(file.is_file() and file.read_text().strip() for file in files))
        return process, {int(file.read_text()) for file in files}

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize("where", ["main", "thread"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_what_was_started_ends_with_the_process_and_its_folders_go(
    building: Callable[[str], tuple[subprocess.Popen[bytes], set[int]]],
    tmp_path: Path,
    number: signal.Signals,
    where: str,
) -> None:
    if number == signal.SIGINT and where == "thread":
        pytest.skip("Python's own: a thread that is waited for is not interrupted")
    process, children = building(where)
    process.send_signal(number)
    process.wait()
    assert _soon(lambda: not any(map(_lives, children)))
    assert _soon(lambda: _scratch(tmp_path) == [])


def test_sigterm_ends_a_process_as_it_does_without_opsmith(
    building: Callable[[str], tuple[subprocess.Popen[bytes], set[int]]], tmp_path: Path
) -> None:
    process, _ = building("main")
    process.terminate()
    assert process.wait() == -signal.SIGTERM
    # What is in its way is gone before it ends.
    assert _scratch(tmp_path) == []


def test_a_handler_of_sigterm_that_is_not_opsmiths_stays() -> None:
    def own(*_: object) -> None:
        pass

    before = signal.signal(signal.SIGTERM, own)
    try:
        with watchdog.watched():
            assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_next_run_removes_what_no_living_process_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / "opsmith-left-12345678.scratch"
    (left / "build").mkdir(parents=True)
    checkout = tmp_path / "opsmith-main"
    checkout.mkdir()
    held = scratch.make_scratch("held")
    scratch._swept.clear()
    try:
        with scratch_folder("next") as folder:
            assert sorted(tmp_path.iterdir()) == sorted([checkout, held, folder])
    finally:
        scratch.remove(held)
    assert list(tmp_path.iterdir()) == [checkout]


def test_a_build_that_ends_well_leaves_nobody_behind() -> None:
    before = _descendants()
    with scratch_folder("well"):
        assert run(["true"], os.environ, "building").returncode == 0
    assert _descendants() <= before, "what another test left may have ended meanwhile"


def test_in_a_process_that_its_supervisor_cleans_up_after_nobody_else_watches() -> None:
    code = """
import os
from pathlib import Path
from opsmith.system import watchdog
watchdog.be_supervised()
with watchdog.watched():
    print(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "[]\n"


def _scratch(folder: Path) -> list[Path]:
    return list(folder.glob("opsmith-*"))


def _descendants() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def _lives(process: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def _soon(happens: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while not happens():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
