"""Faults of indices that select by a value, of which equal values allow several."""

from __future__ import annotations

from typing import Annotated

import torch
from jaxtyping import Float32, Int64
from pairs import pair
from torch import Tensor

from opsmith import Selects, Sorted

KIND = "selections"


def last_of_equals(values: Tensor, count: int, *, descending: bool = False) -> Tensor:
    """Indices of the first of sorted values, the last of equal ones before the others."""
    order = values.flip(-1).sort(dim=-1, stable=True, descending=descending).indices
    return values.shape[-1] - 1 - order[..., :count]


def squares(x: Tensor, y: Tensor) -> Tensor:
    return (x[:, None] - y[None]).square().sum(-1)


def three_nearest(
    x: Float32[Tensor, "N 3"], y: Float32[Tensor, "M 3"]
) -> tuple[Float32[Tensor, "N 3"], Annotated[Int64[Tensor, "N 3"], Selects(squares)]]:
    if y.shape[0] < 3:
        raise ValueError(f"expected at least 3 points, got {y.shape[0]}")
    found = squares(x, y).topk(3, largest=False)
    return found.values, found.indices


def _one_neighbour_thrice(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    found = squares(x, y)
    index = found.sort(dim=1, stable=True).indices[:, :3]
    values = found.gather(1, index)
    return values, torch.where(values == values[:, :1], index[:, :1], index)


def _other_neighbours(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    found = squares(x, y)
    index = last_of_equals(found, 3)
    return found.gather(1, index), index


pair(
    KIND,
    "one of equally near neighbours three times",
    three_nearest,
    wrong=_one_neighbour_thrice,
    right=_other_neighbours,
)


def largest(x: Float32[Tensor, "N C"]) -> Annotated[Int64[Tensor, "N"], Selects("x")]:
    if not x.shape[1]:
        raise ValueError("expected at least one value")
    return x.argmax(1)


pair(
    KIND,
    "argmax of values in bfloat16",
    largest,
    wrong=lambda x: x.bfloat16().argmax(1),
    right=lambda x: last_of_equals(x, 1, descending=True)[:, 0],
)


def gates(x: Tensor) -> Tensor:
    return x.softmax(1)


def gating(
    x: Float32[Tensor, "N E"],
) -> tuple[
    Annotated[Float32[Tensor, "N 2"], Sorted()],
    Annotated[Int64[Tensor, "N 2"], Selects(gates)],
    Int64[Tensor, "E"],
]:
    """The two smallest gates of each token, their experts, and the tokens of each expert."""
    if x.shape[1] < 2:
        raise ValueError(f"expected at least 2 experts, got {x.shape[1]}")
    if not x.isfinite().all():
        raise ValueError("expected finite scores")
    found = gates(x).topk(2, largest=False)
    return found.values, found.indices, torch.bincount(found.indices.view(-1), minlength=x.shape[1])


def _gated(x: Tensor, chosen: Tensor, counted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    counts = torch.bincount(counted.reshape(-1), minlength=x.shape[1])
    return gates(x).gather(1, chosen), chosen, counts


pair(
    KIND,
    "tokens of experts that were not chosen",
    gating,
    wrong=lambda x: _gated(
        x, last_of_equals(gates(x), 2), gates(x).sort(dim=1, stable=True).indices[:, :2]
    ),
    right=lambda x: _gated(x, last_of_equals(gates(x), 2), last_of_equals(gates(x), 2)),
)


def two_smallest(
    x: Float32[Tensor, "N C"],
) -> Annotated[Float32[Tensor, "N 2"], Sorted()]:
    if x.shape[1] < 2 or x.isnan().any():
        raise ValueError("expected two numbers or more")
    return x.topk(2, largest=False).values


pair(
    KIND,
    "values within rounding out of order",
    two_smallest,
    wrong=lambda x: x.topk(2, largest=False).values * torch.tensor([1 + 2**-22, 1 - 2**-22]),
    right=lambda x: x.sort(dim=1).values[:, :2].contiguous(),
)
