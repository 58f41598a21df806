"""Soft dynamic time warping, with the table that its gradient is computed from."""

from typing import Annotated

import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import Between, NonDifferentiable, Unspecified

_Cost = Annotated[Float[Tensor, "B N M"], Unspecified(nan=True, inf=True)]


@opsmith.op("today::soft_dtw", parallel_dims=("B",))
def soft_dtw(
    cost: _Cost, gamma: Annotated[float, Between(0.1, 10)] = 1.0
) -> tuple[Float[Tensor, "B"], Annotated[Float[Tensor, "B N M"], NonDifferentiable()]]:
    """Align two series, softly: the least cost of a path through each matrix of costs.

    Args:
        cost: the cost of pairing each element of one series with each of another.
        gamma: how soft the minimum over the three ways to a pair is.

    Returns:
        The cost of the whole, and the table of the costs up to each pair.

    Source:
        Cuturi and Blondel, "Soft-DTW: a differentiable loss function for time-series", 2017,
        algorithm 1.
    """
    batch, rows, columns = cost.shape
    if 0 in (rows, columns):
        raise ValueError("a series without elements")
    # Along the antidiagonals, each of which depends on the two before.
    far = cost.new_full((batch,), torch.inf)
    table: dict[tuple[int, int], Tensor] = {(-1, -1): cost.new_zeros(batch)}
    for i in range(rows):
        for j in range(columns):
            ways = torch.stack(
                [table.get(pair, far) for pair in ((i - 1, j - 1), (i - 1, j), (i, j - 1))]
            )
            table[i, j] = cost[:, i, j] - gamma * (-ways / gamma).logsumexp(0)
    whole = torch.stack([table[i, j] for i in range(rows) for j in range(columns)], 1)
    return whole[:, -1].clone(), whole.reshape(cost.shape)


@opsmith.op("today::soft_dtw_backward", parallel_dims=("B",))
def soft_dtw_backward(
    grad_out0: Float[Tensor, "B"],
    cost: _Cost,
    result_out1: _Cost,
    gamma: Annotated[float, Between(0.1, 10)],
) -> Float[Tensor, "B N M"]:
    """Give the gradient: how much each pair takes part in the alignment (algorithm 2)."""
    rows, columns = cost.shape[1:]
    share = torch.zeros_like(cost)
    for i in reversed(range(rows)):
        for j in reversed(range(columns)):
            if (i, j) == (rows - 1, columns - 1):
                share[:, i, j] = grad_out0
            for a, b in ((i + 1, j + 1), (i + 1, j), (i, j + 1)):
                if a < rows and b < columns:
                    slack = result_out1[:, a, b] - result_out1[:, i, j] - cost[:, a, b]
                    share[:, i, j] += share[:, a, b] * (slack / gamma).exp()
    return share


soft_dtw.register_kernel("cpu", source="soft_dtw.cpp")
soft_dtw_backward.register_kernel("cpu", source="soft_dtw.cpp")
soft_dtw.register_backward(soft_dtw_backward, grads={"cost": 0})
