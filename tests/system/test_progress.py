"""What takes long says on a terminal what it does, and nothing where nobody looks."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import opsmith
from opsmith.system import progress
from opsmith.targets.exporting import export as exporting

NESTED = """
import time
from opsmith.system.progress import status

with status("tracing the model"):
    time.sleep(0.3)
    print("a line of the report", flush=True)
    with status("building a library"):
        time.sleep(0.3)
    time.sleep(0.3)
with status("comparing"):
    time.sleep(0.3)
"""


def on_a_terminal(script: str, stdout: Path | None) -> list[str]:
    """The lines that a script shows on its terminal, each once, without spinners."""
    here, there = pty.openpty()
    with open(stdout, "w") if stdout else os.fdopen(os.dup(there), "w") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=file,
            stderr=there,
            env={**os.environ, "TERM": "xterm"},
        )
    os.close(there)
    shown = b""
    while True:
        try:
            more = os.read(here, 1 << 16)
        except OSError:  # its other end is closed
            break
        shown += more
    os.close(here)
    assert process.wait() == 0
    text = re.sub(r"[\u2800-\u28ff] ", "", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode()))
    return list(dict.fromkeys(line for line in re.split(r"[\r\n]+", text) if line.strip()))


@pytest.mark.slow
def test_a_title_stands_on_the_terminal_while_its_block_runs(tmp_path: Path) -> None:
    titles = ["tracing the model …", "building a library …", "comparing …"]
    both = on_a_terminal(NESTED, None)
    assert "a line of the report" in both
    assert [line for line in both if line != "a line of the report"] == titles
    # What a user sends to a file goes to the file.
    assert on_a_terminal(NESTED, tmp_path / "log.txt") == titles
    assert (tmp_path / "log.txt").read_text() == "a line of the report\n"


def test_nothing_is_shown_where_there_is_no_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with progress.status("tracing the model"):
        pass
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_an_export_names_each_of_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    titles: list[str] = []
    status = progress.status
    monkeypatch.setattr(exporting, "status", lambda title: titles.append(title) or status(title))
    model = torch.nn.ReLU()
    opsmith.export(model, (torch.ones(2),), target="onnx", out=tmp_path / "dist", say=None)
    assert titles == ["tracing the model", "exporting to ONNX", "comparing ONNX with PyTorch"]


@pytest.mark.slow
def test_emulate_says_that_it_compiles_and_nothing_while_the_program_runs(tmp_path: Path) -> None:
    source = tmp_path / "program.cu"
    source.write_text('#include <cstdio>\nint main() { std::puts("hello"); }\n')
    words = f"sys.argv = ['emulate', {str(source)!r}]"
    run = "try: runpy.run_module('emulators', run_name='__main__')\nexcept SystemExit: pass"
    shown = on_a_terminal(f"import runpy, sys\n{words}\n{run}", None)
    nothing = "== emulate: no kernel was launched: nothing was looked at"
    assert shown == ["compiling program.cu …", "hello", nothing]
