"""Soft dynamic time warping, with the table that its gradient is computed from."""

from typing import Annotated

import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import Between, NonDifferentiable, Unspecified

_Cost = Annotated[Float[Tensor, "B N M"], Unspecified(nan=True, inf=True)]


@opsmith.op("today::soft_dtw", parallel_dims=("B",), where=("N >= 1", "M >= 1"))
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
    table = cost.new_full((cost.shape[0], cost.shape[1] + 1, cost.shape[2] + 1), torch.inf)
    table[:, 0, 0] = 0
    for i, j in _antidiagonals(cost):
        ways = torch.stack((table[:, i, j], table[:, i, j + 1], table[:, i + 1, j]))
        table[:, i + 1, j + 1] = cost[:, i, j] - gamma * (-ways / gamma).logsumexp(0)
    return table[:, -1, -1].clone(), table[:, 1:, 1:].clone()


def _antidiagonals(cost: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return the places of each antidiagonal, which depends on the two before it."""
    rows, columns = cost.shape[1:]
    found = []
    for number in range(rows + columns - 1):
        first, last = max(0, number - columns + 1), min(number, rows - 1)
        i = torch.arange(first, last + 1, device=cost.device)
        found.append((i, number - i))
    return found


@opsmith.op("today::soft_dtw_backward", parallel_dims=("B",), where=("N >= 1", "M >= 1"))
def soft_dtw_backward(
    grad_out0: Float[Tensor, "B"],
    cost: _Cost,
    result_out1: _Cost,
    gamma: Annotated[float, Between(0.1, 10)],
) -> Float[Tensor, "B N M"]:
    """Give the gradient: how much each pair takes part in the alignment (algorithm 2)."""
    rows, columns = cost.shape[1:]
    pad, wide = torch.nn.functional.pad, (0, 1, 0, 1)
    # Pairs outside the table have no share: the exponential of minus infinity is zero.
    table, costs = pad(result_out1, wide, value=-torch.inf), pad(cost, wide)
    moves = ((1, 1), (1, 0), (0, 1))
    places = [(..., slice(a, a + rows), slice(b, b + columns)) for a, b in moves]
    shares = [((table[to] - result_out1 - costs[to]) / gamma).exp() for to in places]
    share = pad(torch.zeros_like(cost), wide)
    share[:, -2, -2] = grad_out0
    for i, j in _antidiagonals(cost)[-2::-1]:
        ways = zip(moves, shares, strict=True)
        share[:, i, j] = sum(share[:, i + a, j + b] * part[:, i, j] for (a, b), part in ways)
    return share[:, :-1, :-1].clone()


soft_dtw.register_kernel("cpu", source="soft_dtw.cpp")
soft_dtw_backward.register_kernel("cpu", source="soft_dtw.cpp")
soft_dtw.register_backward(soft_dtw_backward, grads={"cost": 0})
