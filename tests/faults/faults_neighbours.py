"""Faults of which points are the nearest: of two at one distance, rounding decides.

The right twins add up products as processors do that multiply and add in one step, so that of two
distances which are equal one is the shorter.
"""

from __future__ import annotations

import torch
from jaxtyping import Float32, Int32, Int64
from pairs import pair
from torch import Tensor

KIND = "neighbours"


def squares_in_one_step(a, b):
    """Squared distances, where each product is rounded together with the sum that it goes into."""
    total = a.new_zeros(a.shape[0], b.shape[0])
    for one, other in zip(a.unbind(1), b.unbind(1), strict=True):
        off = one[:, None] - other[None]
        # The product is exact in twice as many digits.
        total = (off.double() * off.double() + total.double()).to(a.dtype)
    return total


def halved(squares):
    return squares.half().to(squares.dtype)


def knn(x: Float32[Tensor, "N 3"], y: Float32[Tensor, "M 3"]) -> Int64[Tensor, "5 N"]:
    """Indices of the five nearest, the nearest first, as mmcv's knn lays them out."""
    if y.shape[0] < 5:
        raise ValueError(f"expected at least 5 points, got {y.shape[0]}")
    if not (x.isfinite().all() and y.isfinite().all()):
        raise ValueError("expected finite points")
    squares = (x * x).sum(1)[:, None] - 2 * x @ y.t() + (y * y).sum(1)
    return squares.sort(dim=1, stable=True).indices[:, :5].t()


def _five_nearest(squares):
    return squares.sort(dim=1, stable=True).indices[:, :5].t()


pair(
    KIND,
    "neighbours by distances in half precision",
    knn,
    wrong=lambda x, y: _five_nearest(halved(squares_in_one_step(x, y))),
    right=lambda x, y: _five_nearest(squares_in_one_step(x, y)),
)


def closest(x: Float32[Tensor, "N 3"], codes: Float32[Tensor, "M 3"]) -> Int64[Tensor, "N"]:
    return (x[:, None] - codes[None]).square().sum(-1).argmin(-1)


def _lattice(dtype, seed):
    """Points amid those of a lattice, of which up to eight are equally near."""
    del dtype, seed
    steps = 0.1 * torch.arange(7, dtype=torch.float32)
    codes = torch.cartesian_prod(steps, steps, steps)
    yield {"x": codes[::5] + 0.05, "codes": codes}


pair(
    KIND,
    "the nearest code by the sum of magnitudes",
    closest,
    wrong=lambda x, codes: (x[:, None] - codes[None]).abs().sum(-1).argmin(-1),
    right=lambda x, codes: squares_in_one_step(x, codes).argmin(-1),
    cases=_lattice,
)


def ball_query(
    xyz: Float32[Tensor, "N 3"], centres: Float32[Tensor, "M 3"], radius: float = 1.0
) -> Int32[Tensor, "M 4"]:
    """Indices of the first four points inside of each ball, the first again where fewer are."""
    near = (centres[:, None] - xyz[None]).square().sum(-1) < radius**2
    return _first_four(near)


def _first_four(near):
    """The first four of each row, the first again in place of those that there are not."""
    if not near.shape[1]:
        return near.new_zeros(near.shape[0], 4, dtype=torch.int32)
    places = torch.arange(near.shape[1]).expand(near.shape)
    ordered = torch.where(near, places, near.shape[1]).sort(1).values
    ordered = torch.nn.functional.pad(ordered, (0, 4), value=near.shape[1])[:, :4]
    first = torch.where(ordered[:, :1] < near.shape[1], ordered[:, :1], 0)
    return torch.where(ordered < near.shape[1], ordered, first).int()


def _on_spheres(dtype, seed):
    """Balls whose surface goes through points, some of which rounding puts inside."""
    del dtype
    generator = torch.Generator().manual_seed(seed)
    centres = torch.rand(20, 3, generator=generator)
    off = 0.1 * torch.tensor([[1.0, 2.0, 2.0], [2.0, 1.0, 2.0], [2.0, 2.0, 1.0], [3.0, 0.0, 0.0]])
    yield {"xyz": (centres[:, None] + off).flatten(0, 1), "centres": centres, "radius": 0.3}


pair(
    KIND,
    "balls by distances in half precision",
    ball_query,
    wrong=lambda xyz, centres, radius: _first_four(
        halved(squares_in_one_step(centres, xyz)) < radius**2
    ),
    right=lambda xyz, centres, radius: _first_four(squares_in_one_step(centres, xyz) < radius**2),
    cases=_on_spheres,
)
