"""The first failure names the cause; what fails because of it is not told as a fault of its own."""

import os
import re
import time
from collections.abc import Callable

import pytest
import torch
from jaxtyping import Float, Float32
from torch import Tensor

import opsmith
from opsmith import checks
from opsmith.checks.cases.failure import LIFELESS
from opsmith.checks.cases.subject import Subject
from opsmith.checks.protocol import all_checks
from opsmith.checks.report.rows import Row
from opsmith.checks.row_history import History
from opsmith.checks.run_report import Report

SELECT = ["dispatch", "reference", "mutation", "aliasing", "layouts", "empty-sizes"]


def declared(name: str, kernel):
    @opsmith.op(f"first_cause::{name}")
    def doubled(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x * 2

    doubled.register_kernel("cpu", kernel)
    return doubled


def _raises(x: Tensor) -> Tensor:
    raise ValueError("never")


def _raises_if_small(x: Tensor) -> Tensor:
    if x.numel() < 3:
        raise ValueError("too small")
    return x * 2


def _raises_in_single(x: Tensor) -> Tensor:
    if x.dtype == torch.float32:
        raise ValueError("not in float32")
    return x * 2


aborts = declared("aborts", lambda x: os.abort())


def test_of_a_kernel_that_never_returns_one_row_fails_and_the_others_do_not_run():
    report = checks.run(declared("raises", _raises), select=SELECT, isolate=False)
    assert report.outcome == "failed"
    assert [(row.check, row.status) for row in report.rows] == [
        ("dispatch", "failed"),
        *((name, "not run") for name in SELECT[1:]),
    ]
    assert {row.message for row in report.rows[1:]} == {
        "not run, since no call returns: see dispatch"
    }
    (alone,) = checks.run(declared("raises_too", _raises), select=["reference"], isolate=False).rows
    assert alone.status == "failed"
    assert alone.message.splitlines()[-1] == LIFELESS


@pytest.mark.slow
def test_of_a_kernel_that_ends_its_process_one_row_fails():
    report = checks.run(aborts, select=SELECT)
    assert [row.status for row in report.rows] == ["failed", *["not run"] * 5]
    assert report.rows[0].code == "OPS-CALL-CRASH"


@pytest.mark.parametrize("kernel", [_raises_if_small, _raises_in_single])
def test_a_kernel_that_returns_somewhere_is_tried_everywhere(kernel):
    operator = declared(kernel.__name__, kernel)
    (row,) = checks.run(operator, select=["reference"], isolate=False).rows
    assert row.status == "failed"
    assert LIFELESS not in row.message


def test_rows_whose_results_are_wrong_with_those_of_a_plain_call_do_not_run():
    @opsmith.op("first_cause::tripled", autograd="reference")
    def tripled(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        return (x * 2).sin()

    # Second derivatives of a function of the results are wrong where these are.
    tripled.register_kernel("cpu", lambda x: (x * 3).sin())
    select = ["reference", "gradient", "nested-gradients", "opcheck"]
    report = checks.run(tripled, select=select, isolate=False, examples=4)
    assert [row.status for row in report.rows] == ["failed", "passed", *["not run"] * 2]
    assert {row.message for row in report.rows[2:]} == {"not run because of reference"}


def test_a_dtype_that_the_kernel_lacks_is_told_once_and_not_by_its_gradient():
    @opsmith.op("first_cause::lacks_half", autograd="reference")
    def lacks_half(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x * 2

    @lacks_half.register_kernel("cpu")
    def _(x: Tensor) -> Tensor:
        if x.dtype == torch.float16:
            raise NotImplementedError("not implemented for 'Half'")
        return x * 2

    report = checks.run([lacks_half], select=["reference", "gradient"], examples=8, isolate=False)
    assert [row.check for row in report.failures] == ["reference"]


def test_first_ends_with_the_first_failure_of_each_operator():
    def wrong(x: Tensor) -> Tensor:
        return x * 3

    both = [declared("wrong", wrong), declared("sound", lambda x: x * 2)]
    select = ["dispatch", "reference", "mutation"]
    report = checks.run(both, select=select, isolate=False, first=True, examples=4)
    assert [row.status for row in report.rows] == ["passed", "failed", "not run", *["passed"] * 3]
    assert report.rows[2].message == "not run, since reference failed"
    assert report.outcome == "failed"


def test_failures_are_told_in_the_order_of_mending():
    codes = {
        "reference": "OPS-VALUE-RANGE",
        "bounds": "OPS-MEMORY-UNINITIALIZED",
        "schedules": "OPS-MEMORY-BOUNDS",
        "cuda-on-cpu": "OPS-CUDA-RACE",
        "gradient": "OPS-GRADIENT-WRONG",
        "compile": "OPS-COMPILE-WRONG",
    }
    rows = [Row("a::b", "cpu", name, "failed", code=code) for name, code in codes.items()]
    other = Row("a::c", "cpu", "reference", "failed", code="OPS-VALUE-WRONG")
    report = Report([*rows, other])
    assert [row.check for row in report.failures] == [
        "schedules",
        "bounds",
        "cuda-on-cpu",
        "reference",
        "gradient",
        "compile",
        "reference",
    ]
    assert report.explain().startswith("a::b: check 'schedules' failed for the 'cpu' kernel.")


@opsmith.op("first_cause::sine")
def sine(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x.sin()


def _save(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


def test_a_layout_is_named_only_where_the_plain_gradient_is_right():
    sine.register_autograd(
        lambda ctx, grad: 2 * grad * ctx.saved_tensors[0].cos(), setup_context=_save
    )
    (row,) = checks.run(sine, select=["gradient"], isolate=False).rows
    assert row.code == "OPS-GRADIENT-WRONG"
    assert row.message.startswith("the gradient of 'x'[0] is ")

    def strides(ctx, grad):
        return grad.as_strided(grad.shape, (1,), 0) * ctx.saved_tensors[0].cos()

    sine.register_autograd(strides, setup_context=_save)
    (row,) = checks.run(sine, select=["gradient"], isolate=False).rows
    assert row.code == "OPS-GRADIENT-STRIDE"
    assert row.message.startswith("with a gradient that came in ")


def test_a_layout_of_arguments_is_named_only_where_contiguous_ones_are_right():
    (row,) = checks.run(declared("thrice", lambda x: x * 3), select=["layouts"], isolate=False).rows
    assert row.code == "OPS-VALUE-WRONG"
    assert "sliced" not in row.case
    assert "transposed" not in row.case


def test_arguments_that_are_given_are_in_a_layout_only_where_they_are_not_contiguous():
    thrice = declared("thrice_of_given", lambda x: x * 3)
    for x, begins in ((torch.ones(3), ""), (torch.ones(6)[::2], "called plainly: ")):
        (row,) = checks.run(thrice, select=["reference"], cases=[{"x": x}], isolate=False).rows
        assert row.code == "OPS-VALUE-WRONG"
        assert re.match(rf"{begins}the result\[\d\] is 3, expected 2", row.message)


def test_a_way_to_call_is_named_only_where_a_plain_call_is_right():
    def in_inference_mode(x: Tensor) -> Tensor:
        return x * (3 if torch.is_inference_mode_enabled() else 2)

    operator = declared("in_a_mode", in_inference_mode)
    (row,) = checks.run(operator, select=["reference"], isolate=False).rows
    assert row.code == "OPS-STATE-MODE"
    assert "torch.inference_mode()" in row.message


@opsmith.op("first_cause::two_names")
def two_names(x: Float32[Tensor, "N C"], w: Float32[Tensor, "N K"]) -> Float32[Tensor, "N C"]:
    return x * w


two_names.register_kernel("cpu", lambda x, w: x * w)


def test_a_declaration_that_the_reference_contradicts_is_told_as_that_with_the_size():
    for check in ("dispatch", "reference"):
        (row,) = checks.run(two_names, select=[check], isolate=False, examples=20).rows
        assert row.code == "OPS-RESULT-DECLARED"
        pattern = (
            r'declaration and reference disagree: the result is Float32\[Tensor, "N C"\], '
            r"\(\d+, 1\) "
            r"where N=\d+, C=1, K=\d+, and the reference gives \(\d+, \d+\), with the size of .*K\n"
        )
        assert re.match(pattern, row.message), row.message


@opsmith.op("first_cause::product")
def product(x: Float32[Tensor, "N C"], w: Float32[Tensor, "K"]) -> Float32[Tensor, "N"]:
    return x @ w


product.register_kernel("cpu", lambda x, w: x @ w)


def test_two_sizes_that_the_reference_takes_only_where_they_are_equal_are_named():
    (row,) = checks.run(product, select=["dispatch"], isolate=False).rows
    assert row.status == "passed"
    (note,) = row.notes
    assert "It takes C and K only where they are equal: if they are one size, declare one" in note


#: What lets time pass in a call of the slow operators.
PASS_TIME: Callable[[float], None] = time.sleep


@opsmith.op("first_cause::slow")
def slow(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    PASS_TIME(5)
    return x * 2


@opsmith.op("first_cause::slow_kernel")
def slow_kernel(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


@slow_kernel.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    PASS_TIME(5)
    return x * 2


def test_what_is_cut_short_since_the_reference_is_slow_says_so_and_in_which_case(
    pass_time, monkeypatch
):
    monkeypatch.setitem(globals(), "PASS_TIME", pass_time)
    (row,) = checks.run(slow, select=["reference"], isolate=False, seconds=100).rows
    assert row.status == "cut short"
    pattern = (
        r"\. The reference, run with many roundings, took \d+ of \d+ s, \d+\.\d s in one case: "
        r"x: float32 \(\d+,\)"
    )
    assert re.search(pattern, row.message), row.message
    (row,) = checks.run(slow_kernel, select=["reference"], isolate=False, seconds=100).rows
    assert row.status == "cut short"
    assert "The reference" not in row.message


@opsmith.op("first_cause::weighed")
def weighed(x: Float32[Tensor, "N C"], w: Float32[Tensor, "C"]) -> Float32[Tensor, "N C"]:
    return x * w


def _save_all(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _halved(ctx, grad):
    x, w = ctx.saved_tensors
    return grad * w / 2, (grad * x).sum(0)


def test_of_three_faults_three_failures_are_told_and_no_row_repeats_one():
    weighed.register_kernel("cpu", lambda x, w: x * w + 1)
    weighed.register_fake(lambda x, w: x.new_empty(x.shape, dtype=torch.float64))
    weighed.register_autograd(_halved, setup_context=_save_all)
    derived = ["gradcheck", "double-backward", "nested-gradients", "vmap", "opcheck", "compile"]
    select = [*SELECT, "fake", "gradient", "determinism", *derived, "onnx-inline"]
    report = checks.run(weighed, select=select, isolate=False, examples=8)
    assert [(row.check, row.code) for row in report.failures] == [
        ("reference", "OPS-VALUE-WRONG"),
        ("fake", "OPS-FAKE-DTYPE"),
        ("gradient", "OPS-GRADIENT-WRONG"),
    ]
    told = {row.check: row.message for row in report.rows if row.status == "not run"}
    assert told == {
        **dict.fromkeys(
            ["layouts", "empty-sizes", "determinism", "vmap", "compile", "gradcheck", "opcheck"],
            "not run because of reference",
        ),
        "double-backward": "not run because of gradient",
        "nested-gradients": "not run because of reference",
    }
    ran = {row.check for row in report.rows if row.status == "passed"}
    assert ran == {"dispatch", "mutation", "aliasing", "onnx-inline"}


def test_a_claim_that_does_not_hold_is_told_once_and_not_by_each_transform_that_rests_on_it():
    @opsmith.op("first_cause::centred", parallel_dims=("N", "C"))
    def centred(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
        return x - x.sum(1, keepdim=True)

    select = ["reference", "parallel-dims", "vmap", "sharding", "jax-vmap"]
    report = checks.run(centred, select=select, isolate=False, examples=8)
    assert [(row.check, row.code) for row in report.failures] == [
        ("parallel-dims", "OPS-PARALLEL-DIMS-CLAIM")
    ]
    others = [row for row in report.rows if row.check in ("vmap", "sharding")]
    assert [row.message for row in others] == ["not run because of parallel-dims"] * 2


def test_what_is_wrong_under_a_condition_leaves_other_rows_something_to_find():
    def of_zeros(x: Tensor) -> Tensor:
        return torch.where(x == 0, 1.0, x * 2) if x.is_contiguous() else x * 3

    report = checks.run(declared("of_zeros", of_zeros), select=SELECT, isolate=False)
    assert [(row.check, row.code) for row in report.failures] == [
        ("reference", "OPS-VALUE-ZERO"),
        ("layouts", "OPS-LAYOUT-STRIDE"),
    ]


@pytest.mark.parametrize("check", ["vmap", "export"])
def test_a_transform_or_a_runtime_is_named_only_where_a_plain_call_is_right(check):
    (row,) = checks.run(
        declared(f"of_{check}", lambda x: x * 3), select=[check], isolate=False
    ).rows
    assert row.code == "OPS-VALUE-WRONG"
    assert row.message.startswith("called plainly: the result[")


def _in_vmap(info, in_dims, x):
    return x * 3, in_dims[0]


def test_a_transform_is_named_where_a_plain_call_is_right():
    operator = declared("in_vmap", lambda x: x * 2)
    operator.register_vmap(_in_vmap)
    (row,) = checks.run(operator, select=["vmap"], isolate=False).rows
    assert row.code == "OPS-VMAP-WRONG"


# --- how failures are joined ----------------------------------------------------------------------


def told(*failed: tuple[str, str, str]) -> list[str]:
    """Return the checks whose rows stay failed, of a kernel whose checks ran in this order."""
    history = History()
    rows = [Row("a::b", "cpu", name, "failed", code=f"OPS-{c}", blame=b) for name, c, b in failed]
    for row in rows:
        history.learn(row)
    known = {one.name: one for one in all_checks()}
    subject = Subject(sine, "reference", "cpu")
    left = []
    for position, row in enumerate(rows):
        before = [one.check for one in rows[:position]]
        if history.settle(row, known[row.check], subject, before).status == "failed":
            left.append(row.check)
    return left


@pytest.mark.parametrize(
    ("failed", "causes"),
    [
        # Memory tells why values are wrong, whichever comes first, and a crash.
        ([("bounds", "MEMORY-BOUNDS", ""), ("reference", "VALUE-RANGE", "")], ["bounds"]),
        ([("dispatch", "CALL-CRASH", ""), ("bounds", "MEMORY-BOUNDS", "")], ["bounds"]),
        # `reference` tells most of what is wrong with the values.
        ([("bounds", "VALUE-WRONG", ""), ("reference", "VALUE-NAN", "")], ["reference"]),
        ([("dispatch", "CALL-RAISED", ""), ("reference", "CALL-RAISED", "")], ["reference"]),
        # A race.
        ([("schedules", "SCHEDULES-SPLIT", ""), ("reference", "STATE-EARLIER", "")], ["schedules"]),
        # Conditions of different kinds are causes of their own.
        (
            [("reference", "VALUE-NAN-LOST", ""), ("empty-sizes", "SIZE-SMALL", "")],
            ["reference", "empty-sizes"],
        ),
        ([("reference", "VALUE-WRONG", ""), ("empty-sizes", "SIZE-SMALL", "")], ["reference"]),
        ([("reference", "VALUE-RANGE", ""), ("export", "VALUE-WRONG", "")], ["reference"]),
        # Runtimes fail for causes of their own.
        (
            [("jax", "TARGET-WRONG", ""), ("onnxruntime", "TARGET-WRONG", "")],
            ["jax", "onnxruntime"],
        ),
        # What is wrong in one function of the author's is one cause, and no other function's.
        (
            [("gradient", "GRADIENT-WRONG", "b.py:1"), ("compile", "COMPILE-WRONG", "b.py:1")],
            ["gradient"],
        ),
        (
            [("reference", "VALUE-WRONG", ""), ("gradient", "GRADIENT-WRONG", "b.py:1")],
            ["reference", "gradient"],
        ),
        # A declaration that its reference contradicts explains all that a plain call does wrong.
        ([("dispatch", "RESULT-DECLARED", ""), ("reference", "CALL-RAISED", "")], ["dispatch"]),
    ],
)
def test_failures_of_one_cause_are_one_failure(failed, causes):
    assert told(*failed) == causes


@pytest.mark.slow
def test_equal_calls_that_differ_are_no_result_of_earlier_ones():
    import faults_state  # noqa: F401
    from pairs import planted

    wrong = planted("last bits that differ from call to call").wrong
    (row,) = checks.run(wrong, select=["determinism"], examples=20).failures
    assert row.code == "OPS-DETERMINISM-REPEAT", row.message
    assert "fresh process" not in row.message
