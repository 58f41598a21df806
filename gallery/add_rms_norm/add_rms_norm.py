"""`norms::add_rms_norm`: the residual connection and the norm behind it, in one pass."""

from collections.abc import Iterator
from typing import Annotated, Any

import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import Between


@opsmith.op(
    "norms::add_rms_norm",
    mutates_args=("residual",),
    parallel_dims=("*rows",),
    batch_invariant=("*rows",),
)
def add_rms_norm(
    x: Float[Tensor, "*rows C"],
    residual: Float[Tensor, "*rows C"],
    weight: Float[Tensor, "C"],
    eps: Annotated[float, Between(1e-6, None)] = 1e-6,
) -> Float[Tensor, "*rows C"]:
    """Add x to residual, in place, and scale each row of the sum by its root mean square.

    Args:
        x: what a layer gives, rows of C elements.
        residual: what goes past the layer; afterwards the sum of both.
        weight: a factor for each column.
        eps: what is added to the mean of the squares.

    Returns:
        ``s / sqrt(mean(s², last dim) + eps) * weight`` for the sum s, as `residual` holds it.

    Source:
        vLLM's ``fused_add_rms_norm``; the norm is that of Zhang and Sennrich 2019
        (arXiv:1910.07467).
    """
    residual += x
    return residual * torch.rsqrt(residual.square().mean(-1, keepdim=True) + eps) * weight


@opsmith.op("norms::add_rms_norm_backward", autograd="reference")
def add_rms_norm_backward(
    grad: Float[Tensor, "*rows C"],
    grad_residual: Float[Tensor, "*rows C"],
    residual: Float[Tensor, "*rows C"],
    weight: Float[Tensor, "C"],
    eps: Annotated[float, Between(1e-6, None)] = 1e-6,
) -> tuple[Float[Tensor, "*rows C"], Float[Tensor, "C"]]:
    """Give the gradients of `add_rms_norm` with respect to the sum and to `weight`.

    Args:
        grad: the gradient of the scaled rows.
        grad_residual: the gradient of the sum, by what uses it later.
        residual: the sum.
        weight: as `add_rms_norm` has it.
        eps: see `weight`.

    Returns:
        The gradient of the sum, which both `x` and the old `residual` have, and that of `weight`.
    """
    scale = torch.rsqrt(residual.square().mean(-1, keepdim=True) + eps)
    scaled = grad * weight
    inner = (scaled * residual).mean(-1, keepdim=True)
    terms = grad * residual * scale
    by_weight = terms.flatten(0, -2).sum(0) if residual.dim() > 1 else terms
    return grad_residual + scale * scaled - scale**3 * inner * residual, by_weight


add_rms_norm.register_kernel("cpu", source="add_rms_norm.cpp")
add_rms_norm.register_kernel("cuda", source="add_rms_norm.cu")
add_rms_norm_backward.register_kernel("cpu", source="add_rms_norm.cpp")
add_rms_norm_backward.register_kernel("cuda", source="add_rms_norm.cu")
add_rms_norm.register_backward(add_rms_norm_backward, grads={"x": 0, "residual": 0, "weight": 1})


@add_rms_norm.register_cases
def _cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    # Rows that fill vectors exactly, with a rest, and not at all; one row, and one of many columns.
    for shape in ((3, 64), (2, 2, 83), (5,), (70, 4), (1, 1040)):
        yield {"x": draw(*shape), "residual": draw(*shape), "weight": draw(shape[-1]), "eps": 1e-5}


@add_rms_norm_backward.register_cases
def _backward_cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed + 1)
    for case in _cases(dtype, seed):
        grad = torch.randn(case["x"].shape, generator=generator).to(dtype)
        yield {"grad": grad, "grad_residual": case.pop("x"), **case}
