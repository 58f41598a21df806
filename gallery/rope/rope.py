"""`llm::rope`: rotary position embedding, in both of its forms."""

from collections.abc import Iterator
from typing import Annotated, Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

import opsmith
from opsmith import Index, NonDifferentiable


@opsmith.op(
    "llm::rope",
    linear_in=("x",),
    parallel_dims=("*tokens", "H"),
    batch_invariant=("*tokens", "H"),
)
def rope(
    x: Float[Tensor, "*tokens H 2*D"],
    positions: Annotated[Int64[Tensor, "*tokens"], Index("P")],
    cos: Annotated[Float[Tensor, "P D"], NonDifferentiable()],
    sin: Annotated[Float[Tensor, "P D"], NonDifferentiable()],
    interleaved: bool = False,
) -> Float[Tensor, "*tokens H 2*D"]:
    """Rotate each pair of a head's elements by an angle of its token's position.

    Args:
        x: queries or keys, H heads of 2D elements for each token.
        positions: of each token, a row of `cos` and `sin`.
        cos: the cosines of the angles, for each position and pair: ``cos(p * base ** (-d / D))``.
        sin: their sines.
        interleaved: whether a pair is elements 2d and 2d + 1, as in GPT-J and RoFormer; otherwise
            it is elements d and d + D, as in GPT-NeoX and LLaMA ("rotate half").

    Returns:
        ``(a cos - b sin, b cos + a sin)`` in place of each pair (a, b).

    Source:
        Su et al. 2021, RoFormer (arXiv:2104.09864). vLLM's ``rotary_embedding`` has the same two
        forms, by ``is_neox_style``.
    """
    return _rotated(x, cos[positions[..., None]], sin[positions[..., None]], interleaved)


@opsmith.op(
    "llm::rope_backward", linear_in=("grad",), parallel_dims=("*tokens", "H"), autograd="reference"
)
def rope_backward(
    grad: Float[Tensor, "*tokens H 2*D"],
    positions: Annotated[Int64[Tensor, "*tokens"], Index("P")],
    cos: Annotated[Float[Tensor, "P D"], NonDifferentiable()],
    sin: Annotated[Float[Tensor, "P D"], NonDifferentiable()],
    interleaved: bool = False,
) -> Float[Tensor, "*tokens H 2*D"]:
    """Give the gradient of `rope` with respect to `x`: the rotation back.

    Args:
        grad: the gradient of the result.
        positions: as `rope` has it, and so the others.
        cos: see `positions`.
        sin: see `positions`.
        interleaved: see `positions`.

    Returns:
        The gradient of `x`.
    """
    return _rotated(grad, cos[positions[..., None]], -sin[positions[..., None]], interleaved)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    if interleaved:
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


rope.register_kernel("cpu", source="rope.cpp")
rope.register_kernel("cuda", source="rope.cu")
rope_backward.register_kernel("cpu", source="rope.cpp")
rope_backward.register_kernel("cuda", source="rope.cu")
rope.register_backward(rope_backward, grads={"x": 0})


def tables(
    positions: int, pairs: int, base: float = 10000.0, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Give the cosines and sines of the first positions.

    Args:
        positions: how many, P.
        pairs: half of a head's elements, D.
        base: pair d turns by ``base ** (-d / pairs)`` from one position to the next.
        dtype: of the tables; they are computed in float64.

    Returns:
        `cos` and `sin`, (P, D).
    """
    rates = base ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
    angles = torch.arange(positions, dtype=torch.float64)[:, None] * rates
    return angles.cos().to(dtype), angles.sin().to(dtype)


@rope.register_cases
def _cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed)
    # Pairs that fill vectors exactly, with a rest, and not at all; more than a tile; no batch.
    for shape, pairs in (((3,), 16), ((2, 2), 21), ((), 4), ((2,), 520), ((5,), 1)):
        cos, sin = tables(40, pairs, dtype=dtype)
        x = torch.randn(*shape, 2, 2 * pairs, generator=generator).to(dtype)
        positions = torch.randint(40, shape, generator=generator)
        for interleaved in (False, True):
            yield {
                "x": x,
                "positions": positions,
                "cos": cos,
                "sin": sin,
                "interleaved": interleaved,
            }


@rope_backward.register_cases
def _backward_cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    for case in _cases(dtype, seed + 1):
        yield {"grad": case.pop("x"), **case}
