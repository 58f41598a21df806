"""Add and RMS norm in one pass, in place, as vLLM's ``fused_add_rms_norm`` (arXiv:1910.07467)."""

from pathlib import Path
from typing import Annotated

import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import Between


@opsmith.op("today::add_rms_norm", mutates_args=("residual",))
def add_rms_norm(
    x: Float[Tensor, "N C"],
    residual: Float[Tensor, "N C"],
    weight: Float[Tensor, "C"],
    eps: Annotated[float, Between(1e-6, None)] = 1e-5,
) -> Float[Tensor, "N C"]:
    """Add x to residual, in place, and scale the rows of the sum by their root mean squares."""
    residual += x
    return residual * torch.rsqrt(residual.square().mean(1, keepdim=True) + eps) * weight


@opsmith.op("today::add_rms_norm_backward")
def add_rms_norm_backward(
    grad: Float[Tensor, "N C"],
    grad_residual: Float[Tensor, "N C"],
    residual: Float[Tensor, "N C"],
    weight: Float[Tensor, "C"],
    eps: Annotated[float, Between(1e-6, None)] = 1e-5,
) -> tuple[Float[Tensor, "N C"], Float[Tensor, "C"]]:
    """The gradients of the sum, which both x and the old residual have, and of weight."""
    scale = torch.rsqrt(residual.square().mean(1, keepdim=True) + eps)
    scaled = grad * weight
    inner = (scaled * residual).mean(1, keepdim=True)
    by_sum = grad_residual + scale * scaled - scale**3 * inner * residual
    return by_sum, (grad * residual * scale).sum(0)


add_rms_norm.register_backward(add_rms_norm_backward, grads={"x": 0, "residual": 0, "weight": 1})
add_rms_norm.register_kernel("cpu", source=Path(__file__).with_name("add_rms_norm.cpp"))
add_rms_norm_backward.register_kernel("cpu", source=Path(__file__).with_name("add_rms_norm.cpp"))
