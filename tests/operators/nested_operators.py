"""One formula, declared with every kind of gradient that an operator can have."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from jaxtyping import Complex, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

import opsmith
from opsmith import Operator

Vector = Float[Tensor, "N"]


def formula(x: Tensor, w: Tensor) -> Tensor:
    return x**3 * w**2


def slopes(grad: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return 3 * x**2 * w**2 * grad, 2 * x**3 * w * grad


def declared(name: str, **words: Any) -> Operator:
    @opsmith.op(f"nested::{name}", parallel_dims=("N",), **words)
    def operator(x: Vector, w: Vector) -> Vector:
        return formula(x, w)

    return operator


def differentiated(name: str, **words: Any) -> Operator:
    """Declare the operator that computes the gradients of another."""

    @opsmith.op(f"nested::{name}", parallel_dims=("N",), **words)
    def operator(grad: Vector, x: Vector, w: Vector) -> tuple[Vector, Vector]:
        return slopes(grad, x, w)

    return operator


def save_arguments(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


def from_saved(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    return slopes(grad, *ctx.saved_tensors)


reference = declared("reference", autograd="reference")

hand = declared("hand")
hand.register_autograd(from_saved, setup_context=save_arguments)

attributes = declared("attributes")


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.x, ctx.w = inputs


attributes.register_autograd(lambda ctx, g: slopes(g, ctx.x, ctx.w), setup_context=_keep)

result = declared("result")


def _from_result(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    x, w, output = ctx.saved_tensors
    return 3 * output / x * grad, 2 * output / w * grad


result.register_autograd(
    _from_result,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs, output),
)

#: Saves what `setup_context` computes.
middle = declared("middle")
middle.register_autograd(
    lambda ctx, g: tuple(slope * g for slope in ctx.saved_tensors),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*slopes(1, *inputs)),
)

operator = declared("operator")
operator.register_backward(
    differentiated("operator_backward", autograd="reference"), grads={"x": 0, "w": 1}
)


@opsmith.op("nested::second", autograd="reference", parallel_dims=("N",))
def second(
    grad_out0: Vector, grad_out1: Vector, grad: Vector, x: Vector, w: Vector
) -> tuple[Vector, Vector, Vector]:
    u, v = grad_out0, grad_out1
    return (
        3 * x**2 * w**2 * u + 2 * x**3 * w * v,
        (6 * x * w**2 * u + 6 * x**2 * w * v) * grad,
        (6 * x**2 * w * u + 2 * x**3 * v) * grad,
    )


#: Has a backward that is an operator, whose own backward is an operator.
chain = declared("chain")
_chain_backward = differentiated("chain_backward")
_chain_backward.register_backward(second, grads={"grad": 0, "x": 1, "w": 2})
chain.register_backward(_chain_backward, grads={"x": 0, "w": 1})

#: Its backward cannot be differentiated, and says so.
once = declared("once")
once.register_autograd(once_differentiable(from_saved), setup_context=save_arguments)

first_alone = declared("first_alone")
first_alone.register_backward(differentiated("first_alone_backward"), grads={"x": 0, "w": 1})

PYTHON = {
    "reference": reference,
    "hand": hand,
    "attributes": attributes,
    "result": result,
    "middle": middle,
    "operator": operator,
    "chain": chain,
}


@opsmith.op("nested::complex_product", autograd="reference")
def complex_product(x: Complex[Tensor, "N"], w: Complex[Tensor, "N"]) -> Complex[Tensor, "N"]:
    return x * x * w


@opsmith.op("nested::write", mutates_args=("x",), autograd="reference")
def _write(x: Vector, w: Vector) -> None:
    x.mul_(w)


def write(x: Tensor, w: Tensor) -> Tensor:
    _write(x, w)
    return x


@functools.cache
def in_cpp() -> dict[str, Operator]:
    """Return operators with kernels in C++, whose gradients are of three kinds."""
    source = Path(__file__).parent / "nested_sources"
    by_reference = declared("cpp_reference", autograd="reference")
    by_hand = declared("cpp_hand")
    by_hand.register_autograd(from_saved, setup_context=save_arguments)
    by_operator = declared("cpp_operator")
    backward = differentiated("cpp_operator_backward")
    backward.register_backward(second, grads={"grad": 0, "x": 1, "w": 2})
    by_operator.register_backward(backward, grads={"x": 0, "w": 1})
    for one in (by_reference, by_hand, by_operator, backward):
        one.register_kernel("cpu", source=source / f"{one.signature.name}.cpp")
    return {"cpp_reference": by_reference, "cpp_hand": by_hand, "cpp_operator": by_operator}
