"""`perception::voxelize`: the points of a cloud, gathered by the cells of a grid."""

import math
from collections.abc import Iterator
from typing import Annotated, Any

import torch
from jaxtyping import Float, Int32
from torch import Tensor

import opsmith
from opsmith import Between, Positive

#: The most cells along an axis: the numbers of all cells have 63 bits.
MOST_CELLS = 1 << 21


@opsmith.op(
    "perception::voxelize",
    autograd="reference",
    data_dependent=("M",),
    where=("C >= 3", "N < 2147483648"),
    tags=(torch.Tag.cudagraph_unsafe,),
)
def voxelize(
    points: Float[Tensor, "N C"],
    voxel_size: Annotated[tuple[float, float, float], Positive()],
    point_cloud_range: tuple[float, float, float, float, float, float],
    max_points: Annotated[int, Between(1, None)] = 35,
    max_voxels: Annotated[int, Between(1, None)] = 20000,
) -> tuple[Float[Tensor, "M {max_points} C"], Int32[Tensor, "M 3"], Int32[Tensor, "M"]]:
    """Gather the points of each cell of a grid that has any.

    Args:
        points: x, y and z of each of N points, and what else is known of it.
        voxel_size: the extent of a cell along x, y and z.
        point_cloud_range: where the grid begins along x, y and z, and where it ends: along each
            axis as many cells as fit, rounded to the nearest whole number, halves to even.
        max_points: of a cell's points the first so many are kept.
        max_voxels: the cells of the points so far; from so many on, points of others are left out.

    Returns:
        The points of each cell with a point, in their order, zeros behind the last; cells in the
        order of their first points. The place of each cell in the grid, z, y and x. The number of
        its points that are kept.

    Raises:
        ValueError: the grid has more than 2,097,152 cells along an axis.

    Source:
        Zhou and Tuzel 2017, VoxelNet (arXiv:1711.06396); ``Voxelization`` of mmcv has the same
        arguments and results.
    """
    low, high = point_cloud_range[:3], point_cloud_range[3:]
    cells = [cells_of(*axis) for axis in zip("xyz", low, high, voxel_size, strict=True)]
    wide = {"dtype": torch.float64, "device": points.device}
    places = points[:, :3].double() - torch.tensor(low, **wide)
    places = (places / torch.tensor(voxel_size, **wide)).floor()
    is_inside = ((places >= 0) & (places < torch.tensor(cells, **wide))).all(1)
    ids = is_inside.nonzero().squeeze(1)
    places = places[ids].long().flip(1)
    z, y, x = places.unbind(1)
    keys, voxels = ((z * cells[1] + y) * cells[0] + x).unique(return_inverse=True)
    numbers = torch.ones_like(ids).cumsum(0) - 1
    firsts = torch.full_like(keys, points.shape[0]).scatter_reduce(0, voxels, numbers, "amin")
    firsts, order = firsts.sort()
    voxels, order = order.argsort()[voxels].sort(stable=True)
    counts = torch.zeros_like(keys).index_add(0, voxels, torch.ones_like(voxels))
    ranks = numbers - (counts.cumsum(0) - counts)[voxels]
    chosen = (torch.ones_like(keys).cumsum(0) <= max_voxels).nonzero().squeeze(1)
    firsts, counts = firsts[chosen], counts[chosen]
    is_kept = (voxels < max_voxels) & (ranks < max_points)
    gathered = points.new_zeros(counts.shape[0], max_points, points.shape[1])
    places_of_kept = voxels[is_kept], ranks[is_kept]
    gathered = gathered.index_put(places_of_kept, points[ids[order[is_kept]]])
    return gathered, places[firsts].int(), counts.clamp(max=max_points).int()


def cells_of(axis: str, low: float, high: float, size: float) -> int:
    """Give the number of cells along an axis.

    Args:
        axis: its name.
        low: where the grid begins.
        high: where it ends.
        size: of a cell.

    Returns:
        The nearest whole number, of halves the even one; 0 where the grid ends before it begins.

    Raises:
        ValueError: there are more than `MOST_CELLS`.
    """
    extent = (high - low) / size
    if not extent <= MOST_CELLS:
        raise ValueError(f"perception::voxelize: more than {MOST_CELLS} cells along {axis}")
    return max(round(extent), 0) if math.isfinite(extent) else 0


voxelize.register_kernel("cpu", source="voxelize.cpp")
voxelize.register_kernel("cuda", source="voxelize.cu")


def cloud(count: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Give points as a lidar sees them: dense near by, x, y, z and a reflectance.

    Args:
        count: how many points.
        seed: decides them.
        dtype: of the points.

    Returns:
        `count` rows of four, in metres, within some 70 m.
    """
    generator = torch.Generator().manual_seed(seed)
    angle = torch.rand(count, generator=generator) * (2 * math.pi)
    distance = 70 * torch.rand(count, generator=generator) ** 2
    height = torch.randn(count, generator=generator) - 1
    reflectance = torch.rand(count, generator=generator)
    points = (distance * angle.cos(), distance * angle.sin(), height, reflectance)
    return torch.stack(points, 1).to(dtype)


@voxelize.register_cases(only=True)
def _cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    # Fewer voxels than there are cells with points, and more; more points in a cell than are kept.
    near = {"voxel_size": (4.0, 4.0, 2.0), "point_cloud_range": (-8.0, -8.0, -3.0, 8.0, 8.0, 1.0)}
    for max_points, max_voxels in ((1, 100), (3, 5), (20, 1000)):
        limits = {"max_points": max_points, "max_voxels": max_voxels}
        for count in (0, 1, 2, 40, 300):
            points = cloud(count, seed, dtype)[:, : 3 + count % 2]
            yield {"points": points.clone(), **near, **limits}
    generator = torch.Generator().manual_seed(seed)
    # On the bounds, and beside them; beyond the grid; NaN and infinity; two cells and a half, and a
    # third of a cell, beside whole ones; three columns, and more.
    edges = torch.tensor([-1.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.25, float("nan"), float("inf")])
    points = torch.cartesian_prod(edges, edges, edges).to(dtype)
    unit = {"voxel_size": (0.25, 0.5, 0.75), "point_cloud_range": (0.0, 0.0, 0.0, 1.0, 1.25, 1.0)}
    for columns in (3, 5):
        more = torch.randn(len(points), columns - 3, generator=generator).to(dtype)
        rows = torch.cat((points, more), 1)
        yield {"points": rows, **unit, "max_points": 4, "max_voxels": 50}
    # No cells along an axis.
    yield {**near, "points": cloud(5, seed, dtype), "point_cloud_range": (0.0, 0.0, 1.0) * 2}
