"""Gradients of functions around NumPy, which only finite differences can judge."""

import numpy
import torch
from jaxtyping import Float32, Float64
from torch import Tensor

import opsmith
from opsmith import checks


def setup(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def declared(name: str, factor: float) -> opsmith.DefinedOperator:
    """Declare a convolution as a tutorial on ``torch.library.custom_op`` would."""

    @opsmith.op(f"leaving::{name}", device_types="cpu", where=("N >= 1", "K >= 1"))
    def convolve(x: Float64[Tensor, "N"], h: Float64[Tensor, "K"]) -> Float64[Tensor, "N+K-1"]:
        return torch.from_numpy(numpy.convolve(x.numpy(), h.numpy()))

    def backward(ctx, grad):
        x, h = ctx.saved_tensors
        of = [torch.nn.functional.conv1d(grad[None, None], one[None, None])[0, 0] for one in (h, x)]
        return of[0], factor * of[1]

    convolve.register_autograd(backward, setup_context=setup)
    return convolve


def test_a_wrong_gradient_is_found_by_differences_and_no_row_says_that_calls_are_refused():
    for factor, status in ((1.0, "passed"), (2.0, "failed")):
        operator = declared(f"convolve_{status}", factor)
        report = checks.run(operator, select=["gradient", "gradcheck"], isolate=False)
        gradient, gradcheck = report.rows
        assert (gradient.status, gradcheck.status) == ("not applicable", status), report.explain()
        assert gradient.message.startswith("the reference is not differentiable PyTorch, so only")
    assert gradcheck.code == "OPS-GRADIENT-NUMERIC"


def test_a_fixed_dtype_that_is_not_double_has_no_differences():
    @opsmith.op("leaving::single")
    def single(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        return x * x

    single.register_autograd(lambda ctx, grad: 2 * grad * ctx.saved_tensors[0], setup_context=setup)
    (row,) = checks.run(single, select=["gradcheck"], isolate=False).rows
    assert (row.status, row.message) == ("not applicable", "the kernel has no float64")


def test_a_backward_that_cannot_be_traced_is_named_with_its_line():
    operator = declared("untraced", 1.0)
    operator.register_autograd(
        lambda ctx, grad: (torch.from_numpy(grad.numpy()), None), setup_context=setup
    )
    (row,) = checks.run(operator, select=["compile"], isolate=False).rows
    assert row.code == "OPS-COMPILE-RAISED"
    assert "backend='aot_eager' raised:" in row.message
    assert "\n  at " in row.message
    assert "test_leaving_pytorch.py:" in row.message.splitlines()[-1]
