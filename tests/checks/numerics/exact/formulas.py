"""Formulas for `formulas.cpp`, the ways of computing each of them, and the faults."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

import opsmith

SIZE = 5


def _rms(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(1, keepdim=True) + 0.05)


def _norm(x: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[1:], eps=0.05)


def _convolved(x: Tensor, y: Tensor) -> Tensor:
    places = torch.arange(x.shape[1])
    return (x[:, None, :] * y[:, (places[:, None] + places) % x.shape[1]]).sum(2)


def _product(x: Tensor, y: Tensor) -> Tensor:
    size = x.shape[1]
    a, b = (one[:, torch.arange(4) % size].reshape(-1, 2, 2) for one in (x, y))
    return (a @ b).reshape(-1, 4)[:, torch.arange(size) % 4]


def _attended(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    return (torch.softmax(x * y / 2, 1) * w).sum(1, keepdim=True) + y


#: Name, reference and number of ways of each formula, in the order of the kernel.
FORMULAS = [
    ("sum", lambda x, y, w: x.sum(1, keepdim=True) / 2 * w, 4),
    ("centred", lambda x, y, w: (1.5 * x - x.mean(1, keepdim=True)) * w, 3),
    ("variance", lambda x, y, w: x.var(1, correction=0, keepdim=True) / 4 * w, 3),
    ("rms norm", lambda x, y, w: _rms(x) * w, 5),
    ("layer norm", lambda x, y, w: _norm(x) * w + y, 3),
    ("softmax", lambda x, y, w: torch.softmax(0.75 * x, 1) * w, 3),
    ("log softmax", lambda x, y, w: torch.log_softmax(x, 1) * w, 2),
    ("gate", lambda x, y, w: x * torch.sigmoid(y * 1.25) * w, 3),
    ("gelu tanh", lambda x, y, w: torch.nn.functional.gelu(x, approximate="tanh") * w, 2),
    ("gelu", lambda x, y, w: torch.nn.functional.gelu(x) * w, 3),
    ("polynomial", lambda x, y, w: (1 + 2 * x + 3 * x**2 + 0.3 * x**3) * w, 4),
    ("dot", lambda x, y, w: (x * y).sum(1, keepdim=True) / 8 * w, 4),
    ("convolution", lambda x, y, w: 2.5 * _convolved(x, y) * w, 2),
    ("running sum", lambda x, y, w: x.cumsum(1) * 0.5 * w, 2),
    ("unit", lambda x, y, w: x / x.norm(dim=1, keepdim=True) * w * 3.5, 2),
    (
        "cosine",
        lambda x, y, w: (
            1.75
            * (x * y).sum(1, keepdim=True)
            / (x.norm(dim=1, keepdim=True) * y.norm(dim=1, keepdim=True))
            * w
        ),
        2,
    ),
    ("maxima", lambda x, y, w: (x.amax(1, keepdim=True) / 2 + y.relu()) * w, 3),
    ("softplus", lambda x, y, w: torch.log1p(x.exp()) / 2 * w, 3),
    ("attention", _attended, 3),
    ("quotient", lambda x, y, w: (x + y) / (x * x + 1.5) * w, 2),
    ("matrices", lambda x, y, w: _product(x, y) * 1.5 * w, 2),
]
FAULTS = range(-6, 0)


@opsmith.op("exact_tests::formulas")
def formulas(
    x: Float[Tensor, "N C"],
    y: Float[Tensor, "N C"],
    w: Float[Tensor, "C"],
    which: int,
    how: int,
) -> Float[Tensor, "N C"]:
    """Compute one of the formulas; the way of computing it makes no difference."""
    return FORMULAS[which][1](x, y, w)


formulas.register_kernel("cpu", source="formulas.cpp")


def arguments(which: int, how: int, seed: int) -> dict:
    """Random arguments of three rows."""
    generator = torch.Generator().manual_seed(seed * 1000 + which)
    x, y, w = (torch.randn(shape, generator=generator) for shape in ((3, SIZE), (3, SIZE), (SIZE,)))
    return {"x": x, "y": y, "w": w * math.pi, "which": which, "how": how}
