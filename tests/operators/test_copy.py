"""A copy of the process, which calls of an operator that is drafted may end."""

import os
import signal
import time

import pytest
import torch

from opsmith.operators.drafting.copy import Copy


def ends(call):
    """Whether a call is odd; some end the copy, or never return."""
    if call == "end":
        os.kill(os.getpid(), signal.SIGSEGV)
    while call == "wait":
        time.sleep(0.1)
    return call % 2 == 1 if isinstance(call, int) else bool(call.sum() > 0)


@pytest.fixture
def copy():
    found = Copy(1)
    yield found
    found.end()


def process_of(copy):
    assert copy.ask(ends, [1]) == [True]
    return copy._running[2].peek()[2][0]


def test_one_copy_answers_until_a_call_ends_it(copy):
    assert copy.ask(ends, [1, 2, 3]) == [True, False, True]
    first = process_of(copy)
    assert copy.ask(ends, [torch.ones(2), torch.zeros(0)]) == [True, False]
    assert process_of(copy) == first
    assert copy.ask(ends, [3, "end", 1]) == [True]
    assert copy.ask(ends, [1]) == [True]
    assert process_of(copy) != first


def test_a_call_that_never_returns_is_one_that_ends_it(copy):
    assert copy.ask(ends, [1, "wait", 1]) == [True]
    assert copy.ask(ends, [2]) == [False]


def test_nothing_is_left_of_a_copy_that_nobody_holds():
    copy = Copy(1)
    copy.ask(ends, [1])
    child = process_of(copy)
    del copy
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
