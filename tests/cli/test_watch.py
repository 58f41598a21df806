"""``opsmith check --watch``."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from opsmith.cli import watch

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


@pytest.mark.long
def test_a_changed_header_or_module_is_checked_again_and_ctrl_c_ends_it(folder: Path):
    command = [sys.executable, "-m", "opsmith", "check", "times.py"]
    process = subprocess.Popen(
        [*command, "--watch", "--check", "reference"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.extend(iter(process.stdout.readline, "")))  # type: ignore[union-attr]
    reader.start()

    def wait_for(text: str) -> None:
        deadline = time.monotonic() + 300
        while text not in "".join(said):
            assert process.poll() is None and time.monotonic() < deadline, "".join(said)
            time.sleep(0.1)
        said.clear()

    try:
        wait_for("watching 4 files")
        (folder / "common" / "factor.h").write_text("constexpr int factor = 3;\n")
        wait_for("1 failed")
        wait_for("watching 4 files")
        (folder / "watched_factor.py").write_text("FACTOR = ")
        wait_for("watched_factor.py changed")
        wait_for("watching 4 files")
        (folder / "watched_factor.py").write_text("FACTOR = 3\n")
        wait_for("2 passed")
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=60) == 0
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        reader.join()


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
