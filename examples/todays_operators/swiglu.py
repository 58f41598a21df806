"""SwiGLU: a gated linear unit whose gate is SiLU."""

import torch
from jaxtyping import Float
from torch import Tensor

import opsmith


@opsmith.op("today::swiglu")
def swiglu(x: Float[Tensor, "B 2*C"]) -> Float[Tensor, "B C"]:
    """Multiply the second half of each row by SiLU of the first.

    Source:
        Shazeer, "GLU variants improve Transformer", 2020.
    """
    gate, value = x.chunk(2, dim=1)
    return torch.nn.functional.silu(gate) * value


@opsmith.op("today::swiglu_backward")
def swiglu_backward(
    grad: Float[Tensor, "B C"], x: Float[Tensor, "B 2*C"]
) -> Float[Tensor, "B 2*C"]:
    """Give the gradient for both halves."""
    gate, value = x.chunk(2, dim=1)
    open_ = gate.sigmoid()
    slope = open_ * (1 + gate * (1 - open_))
    return torch.cat((grad * value * slope, grad * gate * open_), dim=1)


swiglu.register_kernel("cpu", source="swiglu.cpp")
swiglu_backward.register_kernel("cpu", source="swiglu.cpp")
swiglu.register_backward(swiglu_backward, grads={"x": 0})
