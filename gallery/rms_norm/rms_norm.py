"""`norms::rms_norm`."""

from collections.abc import Iterator
from typing import Annotated, Any

import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import Between


@opsmith.op("norms::rms_norm", parallel_dims=("*rows",), batch_invariant=("*rows",))
def rms_norm(
    x: Float[Tensor, "*rows C"],
    weight: Float[Tensor, "C"],
    eps: Annotated[float, Between(1e-6, None)] = 1e-6,
) -> Float[Tensor, "*rows C"]:
    """Scale each row by its root mean square, and each column by a weight.

    Args:
        x: rows of C elements.
        weight: a factor for each column.
        eps: what is added to the mean of the squares.

    Returns:
        ``x / sqrt(mean(x², last dim) + eps) * weight``.

    Source:
        Zhang and Sennrich 2019, Root Mean Square Layer Normalization (arXiv:1910.07467).
    """
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


@opsmith.op("norms::rms_norm_backward", autograd="reference")
def rms_norm_backward(
    grad: Float[Tensor, "*rows C"],
    x: Float[Tensor, "*rows C"],
    weight: Float[Tensor, "C"],
    eps: Annotated[float, Between(1e-6, None)] = 1e-6,
) -> tuple[Float[Tensor, "*rows C"], Float[Tensor, "C"]]:
    """Give the gradients of `rms_norm` with respect to `x` and `weight`.

    Args:
        grad: the gradient of the scaled rows.
        x: as `rms_norm` has it, and so the others.
        weight: see `x`.
        eps: see `x`.

    Returns:
        The gradient of `x` and the gradient of `weight`.
    """
    scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    scaled = grad * weight
    inner = (scaled * x).mean(-1, keepdim=True)
    by_weight = (grad * x * scale).flatten(0, -2).sum(0) if x.dim() > 1 else grad * x * scale
    return scale * scaled - scale**3 * inner * x, by_weight


rms_norm.register_kernel("cpu", source="rms_norm.cpp")
rms_norm.register_kernel("cuda", source="rms_norm.cu")
rms_norm.register_kernel("npu", source="rms_norm_npu.cpp", language="ascendc")
rms_norm_backward.register_kernel("cpu", source="rms_norm.cpp")
rms_norm_backward.register_kernel("cuda", source="rms_norm.cu")
rms_norm.register_backward(rms_norm_backward, grads={"x": 0, "weight": 1})


@rms_norm.register_cases
def _cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed)
    # Rows that fill vectors exactly, with a rest, and not at all; one row, and one of many columns.
    for shape in ((3, 64), (2, 2, 83), (5,), (70, 4), (1, 1040)):
        x = torch.randn(shape, generator=generator).to(dtype)
        weight = torch.randn(shape[-1], generator=generator).to(dtype)
        yield {"x": x, "weight": weight, "eps": 1e-5}


@rms_norm_backward.register_cases
def _backward_cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed + 1)
    for case in _cases(dtype, seed):
        yield {"grad": torch.randn(case["x"].shape, generator=generator).to(dtype), **case}
