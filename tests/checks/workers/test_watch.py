"""``opsmith check --watch``."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from opsmith.checks.workers import watch
from opsmith.system.files import cache_folder

DECLARATION = """
import opsmith
from jaxtyping import Float
from torch import Tensor
import watched_factor

@opsmith.op("watched::times")
def times(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * watched_factor.FACTOR

times.register_kernel("cpu", source="times.cpp")
"""
KERNEL = """
#include <opsmith/kernel.h>
#include "times.h"
#include "common/factor.h"
template <typename T>
void times(const opsmith::Context&, const watched::times_args<T>& a) {
  for (int64_t i = 0; i < a.N; ++i) a.out[i] = a.x[i] * factor;
}
OPSMITH_KERNEL(watched, times, cpu, float)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "times.py").write_text(DECLARATION)
    (tmp_path / "watched_factor.py").write_text("FACTOR = 2\n")
    (tmp_path / "times.cpp").write_text(KERNEL)
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "factor.h").write_text("constexpr int factor = 2;\n")
    return tmp_path


GRADIENT = """

@times.register_autograd
def backward(ctx, grad):
    return grad * 2.0
"""
#: Runs the command, and notes each program that it or a fork of it starts.
NOTING = """
import subprocess, sys
start = subprocess.Popen.__init__
def noting(self, command, *others, **more):
    with open("started", "a") as file:
        print(*command, file=file)
    start(self, command, *others, **more)
subprocess.Popen.__init__ = noting
sys.argv = ["opsmith", "check", "times.py", "--watch", *sys.argv[1:]]
from opsmith.cli import main
main()
"""


class Watching:
    """The command in a folder, and what it has printed since the last look."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder, self.said = folder, [""]
        self.process = subprocess.Popen(
            [sys.executable, "-c", NOTING, *words],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.said.append(line)

    def wait_for(self, text: str) -> str:
        """Wait until a text is printed, and return all that was."""
        deadline = time.monotonic() + 300
        while text not in "".join(self.said):
            there = self.process.poll() is None and time.monotonic() < deadline
            assert there, "".join(self.said)
            time.sleep(0.1)
        said = "".join(self.said)
        self.said.clear()
        return said

    def started(self) -> list[str]:
        """Return the programs that were started since the last look."""
        path = self.folder / "started"
        found = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return found

    def __enter__(self) -> "Watching":
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.reader.join()


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


@pytest.mark.long
def test_a_changed_header_or_module_is_checked_again_and_ctrl_c_ends_it(folder: Path):
    with Watching(folder, "--check", "reference") as watching:
        watching.wait_for("watching 4 files")
        (folder / "common" / "factor.h").write_text("constexpr int factor = 3;\n")
        watching.wait_for("1 failed")
        watching.wait_for("watching 4 files")
        (folder / "watched_factor.py").write_text("FACTOR = ")
        watching.wait_for("watched_factor.py changed")
        watching.wait_for("watching 4 files")
        (folder / "watched_factor.py").write_text("FACTOR = 3\n")
        watching.wait_for("2 passed")
        watching.wait_for("watching 4 files")
        os.killpg(watching.process.pid, signal.SIGINT)
        assert watching.process.wait(timeout=60) == 0


@pytest.mark.slow
def test_a_save_starts_no_python_compiles_the_kernel_alone_and_begins_with_what_failed(
    folder: Path,
):
    with Watching(folder, "--check", "dispatch,reference,bounds") as watching:
        watching.wait_for("watching 4 files")
        watching.started()
        edit(folder / "times.cpp", "* factor;", "* factor + 1;")
        said = watching.wait_for("watching 4 files")
        assert "1 failed" in said, said
        programs = [line.split()[0] for line in watching.started() if "watchdog.py" not in line]
        assert programs
        assert not [one for one in programs if "python" in Path(one).name], programs
        saved = (folder / "times.cpp").stat().st_mtime_ns
        compiled = {
            path.parents[2].name
            for path in (cache_folder() / "objects").glob("watched__times*/*/*/*.o")
            if path.stat().st_mtime_ns >= saved
        }
        assert compiled == {"watched__times"}
        edit(folder / "times.cpp", "* factor + 1;", "* factor;")
        said = watching.wait_for("watching 4 files")
        assert "4 passed" in said
        # Without a failure, two others come before it.
        assert said.index(" reference ") < said.index(" dispatch ") < said.index(" bounds "), said


@pytest.mark.slow
def test_a_changed_backward_runs_no_row_of_the_kernel_alone_and_the_report_says_so(folder: Path):
    with (folder / "times.py").open("a") as file:
        file.write(GRADIENT)
    with Watching(folder, "--check", "bounds,schedules,gradient") as watching:
        assert "4 passed" in watching.wait_for("watching 4 files")
        edit(folder / "times.py", "grad * 2.0", "grad * 3.0")
        said = watching.wait_for("watching 4 files")
        before = (
            "from before, since nothing that they rest on has changed: build, bounds, schedules"
        )
        assert before in said
        assert "1 failed" in said
        edit(folder / "times.py", "grad * 3.0", "grad * 2.0")
        assert "4 passed" in watching.wait_for("watching 4 files")
        edit(folder / "times.cpp", "* factor;", "* factor + 1;")
        said = watching.wait_for("watching 4 files")
        assert "from before" not in said
        assert "OPS-" in said


def test_a_change_while_a_check_runs_is_not_missed(tmp_path: Path):
    known, new, old = (tmp_path / name for name in ("known", "new", "old"))
    old.write_text("")
    known.write_text("")
    before = watch.stamps([known])
    time.sleep(0.02)
    started = time.time_ns()
    time.sleep(0.02)
    known.write_text("changed")
    new.write_text("")
    now = watch.stamps([old, known, new])
    assert watch._changed(now, before, started) == [known, new]
    assert watch._changed(watch.stamps([old, known]), watch.stamps([known]), started) == []


def test_a_file_that_is_gone_has_changed(tmp_path: Path):
    path = tmp_path / "kernel.cpp"
    path.write_text("")
    before = watch.stamps([path])
    path.unlink()
    assert watch.stamps([path]) != before


def test_only_a_users_own_files_are_watched():
    import emulators.cuda.rewriting  # as some checks do
    import opsmith.checks

    watched = watch.files_of([])
    own = (Path(opsmith.checks.__file__), Path(emulators.cuda.rewriting.__file__))
    assert Path(__file__) in watched
    assert not {path.resolve() for path in own} & set(watched)
