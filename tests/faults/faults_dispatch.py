"""Faults in what PyTorch calls: batching rules, kernels of others, and calls that none refuses."""

from __future__ import annotations

from typing import Annotated

from jaxtyping import Float, Float32
from pairs import pair
from torch import Tensor

from opsmith import Between

KIND = "dispatch"


def added_along(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x.cumsum(0)


pair(
    KIND,
    "a batching rule that works along the batch",
    added_along,
    vmap=(
        lambda info, in_dims, x: (x.cumsum(0), in_dims[0]),
        lambda info, in_dims, x: (x.movedim(in_dims[0], 0).cumsum(1), 0),
    ),
    row="vmap",
    said={"vmap": ("vmap over x",)},
)


def doubled(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2


pair(
    KIND,
    "a kernel that never runs",
    doubled,
    wrong=lambda x: x + x,
    override=lambda x: x * 2,
    row="dispatch",
    said={"dispatch": ("not the 'cpu' kernel",)},
)


def with_index(
    x: Float[Tensor, "N"], index: Annotated[Float32[Tensor, "M"], Between(0, 1)], k: int
) -> Float[Tensor, "N"]:
    return x * 2


def rows_doubled(
    x: Float[Tensor, "N"], rows: Annotated[Float[Tensor, "M"], Between(0, 1)]
) -> Float[Tensor, "M"]:
    return rows * 2


def _foreign(x, rows):
    if x.dim() != 1 or rows.dim() != 1 or rows.min() < 0 or rows.max() > 1:
        raise RuntimeError("Shape mismatch")
    return rows * 2


pair(
    KIND,
    "every argument accepted",
    with_index,
    override=lambda x, index, k: x * 2,
    row="validation",
    said={"validation": ("accepted, expected an error",)},
)
pair(
    KIND,
    "refusals that name nobody",
    rows_doubled,
    override=_foreign,
    row="validation",
    said={"validation": ("does not begin with 'faults::refusals_that_name_nobody__wrong: '",)},
)
