"""A copy of the process, which calls of an operator that is drafted may end."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from opsmith.checks.isolation.forked_probe import Copy
from opsmith.system.processes.launch import _Fork


def ends(call):
    """Whether a call is odd; some end the copy, or never return."""
    if call == "end":
        os.kill(os.getpid(), signal.SIGSEGV)
    while call == "wait":
        time.sleep(0.1)
    return call % 2 == 1 if isinstance(call, int) else bool(call.sum() > 0)


@pytest.fixture
def copy():
    found = Copy(ends, 60)
    yield found
    found.end()


def process_of(copy):
    assert copy.answers([1]) == [True]
    return copy._child


def test_one_copy_answers_until_a_call_ends_it(copy):
    assert copy.answers([1, 2, 3]) == [True, False, True]
    first = process_of(copy)
    assert copy.answers([torch.ones(2), torch.zeros(0)]) == [True, False]
    assert process_of(copy) == first
    assert copy.answers([3, "end", 1]) == [True]
    assert copy.answers([1]) == [True]
    assert process_of(copy) != first


def test_a_call_that_never_returns_is_one_that_ends_it(copy):
    assert copy.answers([1]) == [True]
    copy._seconds = 2.0
    assert copy.answers([1, "wait", 1]) == [True]
    copy._seconds = 60.0
    assert copy.answers([2]) == [False]


def test_nothing_is_left_of_a_copy_that_was_ended():
    copy = Copy(ends, 60)
    child = process_of(copy)
    copy.end()
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    copy.end()


def test_a_copy_ends_by_itself_while_a_later_one_lives(copy, monkeypatch):
    killed = []
    monkeypatch.setattr(_Fork, "kill", lambda fork: killed.append(os.kill(fork.pid, 9)))
    first = process_of(copy)
    later = Copy(ends, 60)
    try:
        assert process_of(later) != first
        copy.stop()
        assert not killed  # the later one holds no pipe to it, whose end it waits for
        assert copy.answers([1]) == later.answers([1]) == [True]
    finally:
        later.end()
    copy.end()
    assert not killed


@pytest.mark.slow
def test_nothing_is_left_of_a_copy_that_nobody_holds():
    # In a process of its own: here, what looks at frames may hold it for longer.
    script = (
        "import os\n"
        "from opsmith.checks.isolation.forked_probe import Copy\n"
        "copy = Copy(lambda call: True, 60)\n"
        "assert copy.answers([1]) == [True]\n"
        "child = copy._child\n"
        "os.kill(child, 0)\n"
        "del copy\n"
        "try:\n"
        "    os.kill(child, 0)\n"
        "except ProcessLookupError:\n"
        "    print('ended')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "ended\n", done.stderr
