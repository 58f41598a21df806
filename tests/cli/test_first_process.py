"""The command as the first process of a container: signals reach it, and its exit code is kept."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, sys, time
from opsmith.cli.first_process import run_in_child

first = os.getpid()
run_in_child()
print(os.getpid() != first, os.getpid(), flush=True)
if sys.argv[1:]:
    sys.exit(int(sys.argv[1]))
time.sleep(600)
"""


def start(*arguments: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_first_process_ends_the_command_and_says_so(number: signal.Signals) -> None:
    process = start()
    assert process.stdout is not None
    in_child, child = process.stdout.readline().split()
    assert in_child == "True"
    process.send_signal(number)
    assert process.wait(60) in (128 + number, 1)  # Python ends by itself at an interrupt
    assert not Path("/proc", child).exists()


def test_the_first_process_has_the_exit_code_of_the_command() -> None:
    process = start("5")
    assert process.communicate(timeout=60)[0].startswith("True")
    assert process.returncode == 5


def test_the_command_leaves_the_first_process_of_a_container() -> None:
    program = """
import os, sys
from opsmith.cli import first_process, main

os.getpid = lambda: 1
first_process.run_in_child = lambda: print("in a child", flush=True)
sys.argv = ["opsmith", "--version"]
main()
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert said.stdout.startswith("in a child\nopsmith "), said.stderr
