"""The three nearest neighbours of each point, as point networks interpolate between them."""

from typing import Annotated

from jaxtyping import Float, Int32
from torch import Tensor

import opsmith
from opsmith import NonDifferentiable, Selects, Sorted, Unspecified


def _squares(points: Tensor, known: Tensor) -> Tensor:
    return (points[:, :, None] - known[:, None]).square().sum(-1)


@opsmith.op("today::three_nearest", where=("M >= 3",))
def three_nearest(
    points: Annotated[Float[Tensor, "B N 3"], Unspecified(nan=True, inf=True)],
    known: Annotated[Float[Tensor, "B M 3"], Unspecified(nan=True, inf=True)],
) -> tuple[
    Annotated[Float[Tensor, "B N 3"], Sorted(), NonDifferentiable()],
    Annotated[Int32[Tensor, "B N 3"], Selects(_squares)],
]:
    """Find the three known points that are nearest to each point.

    Args:
        points: the points whose neighbours are sought.
        known: the points among which they are sought.

    Returns:
        The squared distances, the least first, and the indices.

    Source:
        ``three_nn`` of Qi et al., "PointNet++", 2017.
    """
    found = _squares(points, known).topk(3, largest=False)
    return found.values, found.indices.int()


three_nearest.register_kernel("cpu", source="three_nearest.cpp")
