"""Threads that meet are told apart from what depends on earlier calls, and from plain faults."""

import os
import random

import pytest
import torch
from jaxtyping import Float32
from torch import Tensor

import opsmith
from opsmith import checks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core has no second thread"),
]


@opsmith.op("meeting::now_and_then")
def now_and_then(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


@now_and_then.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    # What a process draws after a fork must not be what its parent drew.
    meet = torch.get_num_threads() > 1 and random.SystemRandom().random() < 0.3
    return x * 2 + (1 if meet else 0)


@opsmith.op("meeting::always")
def always(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


@always.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    return x * 2 + (1 if torch.get_num_threads() > 1 else 0)


@opsmith.op("meeting::counts")
def counts(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


_calls = [0]


@counts.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    _calls[0] += 1
    return x * 2 + (1 if _calls[0] > 5 else 0)


@opsmith.op("meeting::wrong")
def wrong(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


wrong.register_kernel("cpu", lambda x: x * 2 + 1)

CODES = {
    now_and_then: "OPS-DETERMINISM-THREADS",
    always: "OPS-DETERMINISM-THREADS",
    counts: "OPS-STATE-EARLIER",
    wrong: "OPS-VALUE-WRONG",
}


def test_the_cause_is_a_thread_only_where_one_thread_is_right():
    report = checks.run(CODES, select=["reference"], examples=20)
    assert {row.operator: row.code for row in report.rows} == {
        operator.name: code for operator, code in CODES.items()
    }
    for row in report.rows[:2]:
        first, *_, last = row.message.splitlines()
        assert first.endswith("; with one thread the same call is right")
        assert last.startswith("However often it is repeated, one thread gives the right results: ")
        assert "sanitize-thread" not in last  # the kernel is not compiled
    assert report.rows[2].message.splitlines()[-1].startswith("The same call is right in a fresh ")
    assert "thread" not in report.rows[3].message


@pytest.mark.parametrize("seed", range(3))
def test_calls_at_once_that_disturb_each_other_are_no_result_of_earlier_calls(seed: int) -> None:
    import faults_native  # noqa: F401
    from pairs import planted

    wrong = planted("static scratch").wrong
    (row,) = checks.run(wrong, select=["side-effects"], seed=seed).failures
    assert row.code == "OPS-STATE-THREADS", row.message
    assert "fresh process" not in row.message
