"""A gradient that is an operator."""

from jaxtyping import Float
from torch import Tensor

from opsmith import (
    OpsmithError,  # noqa: F401
    op,
)


@op("sample::weighted_square", parallel_dims=("N",))
def weighted_square(x: Float[Tensor, "N C"], weight: Float[Tensor, "C"]) -> Float[Tensor, "N C"]:
    """Square x, and multiply every row by weight."""
    return weight * x**2


@op("sample::weighted_square_backward")
def weighted_square_backward(
    grad: Float[Tensor, "N C"], x: Float[Tensor, "N C"], weight: Float[Tensor, "C"]
) -> tuple[Float[Tensor, "N C"], Float[Tensor, "C"]]:
    """Give the gradients of x and of weight."""
    return 2 * weight * x * grad, (x**2 * grad).sum(0)


weighted_square.register_kernel("cpu", source="kernels/weighted_square.cpp")
weighted_square.register_kernel("cuda", triton=".in_triton:kernel", grid=("N",))


def setup_context(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


@weighted_square.register_autograd(setup_context=setup_context)
def backward(ctx, grad):
    return weighted_square_backward(grad, *ctx.saved_tensors)


@weighted_square.register_onnx(opset=7)
def in_onnx(op, x, weight):
    return op.Mul(weight, op.Mul(x, x))
