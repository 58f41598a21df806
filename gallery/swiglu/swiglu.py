"""`llm::swiglu`: the gated linear unit of LLaMA's feed-forward layers."""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

import opsmith


@opsmith.op("llm::swiglu", parallel_dims=("*rows",), batch_invariant=("*rows",))
def swiglu(x: Float[Tensor, "*rows 2*C"]) -> Float[Tensor, "*rows C"]:
    """Multiply the second half of each row by SiLU of the first.

    Args:
        x: rows of 2C elements: the gates, and behind them the values. A linear layer with both
            weights side by side gives them in one product.

    Returns:
        ``silu(gate) * value``, where ``silu(g) = g / (1 + exp(-g))``.

    Source:
        Shazeer 2020, GLU Variants Improve Transformer (arXiv:2002.05202). vLLM's
        ``silu_and_mul`` has the same argument.
    """
    gate, value = x.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * value


@opsmith.op("llm::swiglu_backward", autograd="reference", parallel_dims=("*rows",))
def swiglu_backward(
    grad: Float[Tensor, "*rows C"], x: Float[Tensor, "*rows 2*C"]
) -> Float[Tensor, "*rows 2*C"]:
    """Give the gradient of `swiglu` with respect to `x`.

    Args:
        grad: the gradient of the result.
        x: as `swiglu` has it.

    Returns:
        The gradient of the gates, and behind it that of the values.
    """
    gate, value = x.chunk(2, dim=-1)
    open_ = gate.sigmoid()
    slope = open_ * (1 + gate * (1 - open_))
    return torch.cat((grad * value * slope, grad * gate * open_), dim=-1)


# GCC makes vectors of loops with `exp_of` where no comparison of floats may trap.
FLAGS = ("-fno-trapping-math",)
swiglu.register_kernel("cpu", source="swiglu.cpp", flags=FLAGS)
swiglu.register_kernel("cuda", source="swiglu.cu")
swiglu_backward.register_kernel("cpu", source="swiglu.cpp", flags=FLAGS)
swiglu_backward.register_kernel("cuda", source="swiglu.cu")
swiglu.register_backward(swiglu_backward, grads={"x": 0})


@swiglu.register_cases
def _cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed)
    # Rows that fill vectors exactly, with a rest, and not at all; longer than a tile; one row.
    for shape in ((3, 2 * 16), (2, 2, 2 * 83), (2 * 5,), (2, 2 * 700), (1, 2 * 1040)):
        yield {"x": torch.randn(shape, generator=generator).to(dtype)}
    # Gates whose exponential is beyond the range of float.
    x = torch.randn(2, 2 * 24, generator=generator)
    x[0, :24], x[1, :24] = -95.0, 95.0
    yield {"x": x.to(dtype)}


@swiglu_backward.register_cases
def _backward_cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed + 1)
    for case in _cases(dtype, seed):
        *rows, columns = case["x"].shape
        grad = torch.randn(*rows, columns // 2, generator=generator)
        yield {"grad": grad.to(dtype), **case}
