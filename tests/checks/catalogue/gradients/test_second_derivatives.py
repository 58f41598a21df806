"""The row `double-backward`: second derivatives are the reference's, where it has any."""

import torch
from jaxtyping import Float64
from torch import Tensor

import opsmith
from opsmith import checks


@opsmith.op("second_derivatives::cubed")
def cubed(x: Float64[Tensor, "N"]) -> Float64[Tensor, "N"]:
    return x**3


@opsmith.op("second_derivatives::cubed_by_numpy")
def cubed_by_numpy(x: Float64[Tensor, "N"]) -> Float64[Tensor, "N"]:
    return torch.from_numpy(x.detach().numpy() ** 3)


def _declare(operator, backward):
    operator.register_autograd(
        backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0])
    )


_declare(cubed, lambda ctx, grad: 3 * ctx.saved_tensors[0].detach() ** 2 * grad)
_declare(cubed_by_numpy, lambda ctx, grad: 3 * ctx.saved_tensors[0] ** 2 * grad)


def _row(operator):
    (row,) = checks.run(operator, select=["double-backward"], isolate=False).rows
    return row


def test_a_backward_that_leaves_out_the_second_derivative_fails():
    row = _row(cubed)
    assert (row.status, row.code) == ("failed", "OPS-GRADIENT-SECOND")
    assert "the gradient, differentiated again: the derivative by 'x'[0] is" in row.message


def test_a_reference_that_autograd_cannot_follow_has_no_second_derivative_to_compare_with():
    row = _row(cubed_by_numpy)
    assert row.status == "not applicable"
    assert row.message == "the reference has no second derivative to compare with"
