"""Arguments for `bev_pool_v2`: small ones for each decision of its contract, and those of a car."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from .geometry import Grid, Ranks, frustum, lift, pool_ranks, surround_cameras

# BEVDet's grid for nuScenes: 102.4 m square in cells of 0.8 m, one layer of 8 m.
NUSCENES = Grid((-51.2, -51.2, -5.0), (0.8, 0.8, 8.0), (128, 128, 1))


def camera_case(
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    *,
    batch: int = 1,
    feature_size: tuple[int, int] = (16, 44),
    bins: int = 59,
    channels: int = 64,
    grid: Grid = NUSCENES,
) -> dict[str, Any]:
    """Give what six cameras around a car pool, by default at BEVDet's size on nuScenes.

    Args:
        dtype: of `depth` and `feat`.
        seed: decides their values; the indices follow from the geometry alone.
        batch: frames B.
        feature_size: height H and width W of the feature map of a 256 x 704 image.
        bins: depth bins D, from 1 m to 59 m.
        channels: C.
        grid: the cells.

    Returns:
        The arguments of `bev_pool_v2` by name. By default P = 141,037 of 249,216 points fall into
        the grid, in I = 9,685 of 16,384 cells.
    """
    points = lift(
        frustum((256, 704), feature_size, torch.linspace(1, 59, bins)), surround_cameras(batch)
    )
    ranks = pool_ranks(points, grid)
    return _arguments(dtype, seed, points.shape[:5], channels, ranks, grid.bev_size)


def full_case(dtype: torch.dtype = torch.float32, seed: int = 0) -> dict[str, Any]:
    """Give BEVDet's size on nuScenes with every point in the grid: P = 249,216.

    The depths end at 40 m, and cells are as high as the sky.
    """
    points = lift(frustum((256, 704), (16, 44), torch.linspace(1, 40, 59)), surround_cameras())
    grid = Grid((-51.2, -51.2, -100.0), (0.8, 0.8, 200.0), (128, 128, 1))
    ranks = pool_ranks(points, grid)
    return _arguments(dtype, seed, points.shape[:5], 64, ranks, grid.bev_size)


def cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    """Give one small set of arguments for each question that the contract settles."""
    generator = torch.Generator().manual_seed(seed)
    shape, bev_size = (2, 2, 3, 2, 3), (2, 3, 4)
    frames, cameras, bins, rows, columns = shape
    pixels, cells = rows * columns, frames * 24

    def draw(high: int, count: int = 40) -> Tensor:
        return torch.randint(high, (count,), dtype=torch.int32, generator=generator)

    def case(
        ranks_bev: Tensor, starts: list[int], lengths: list[int], channels: int = 5, **replaced: Any
    ) -> dict[str, Any]:
        count = len(ranks_bev)
        ranks_depth = replaced.get("ranks_depth", draw(frames * cameras * bins * pixels, count))
        ranks_feat = ranks_depth // (bins * pixels) * pixels + ranks_depth % pixels
        ranks = Ranks(ranks_depth, ranks_feat, ranks_bev, _int32(starts), _int32(lengths))
        return _arguments(dtype, seed, shape, channels, ranks, bev_size)

    def runs(ranks_bev: Tensor, channels: int = 5, **replaced: Any) -> dict[str, Any]:
        lengths = torch.unique_consecutive(ranks_bev, return_counts=True)[1]
        starts = lengths.cumsum(0) - lengths
        return case(ranks_bev, starts.tolist(), lengths.tolist(), channels, **replaced)

    ordered = draw(cells).sort().values
    # As BEVDet builds them; the channels fill registers exactly, with a rest, and not at all.
    for channels in (1, 16, 83, 128):
        yield runs(ordered, channels)
    # A cell in several intervals that follow each other, and in some far apart.
    yield case(torch.full_like(ordered, 7), [0, 10, 11, 30], [10, 1, 19, 10])
    yield runs(torch.cat((ordered, ordered)))
    # A depth bin that several points read, as in the gradient it sums.
    yield runs(ordered, ranks_depth=draw(3))
    # No points, no intervals, neither.
    yield case(ordered, [], [])
    yield case(ordered[:0], [], [])
    # Points that no interval holds, empty intervals, and points that several hold.
    yield case(ordered, [3, 20, 25, 39], [10, 0, 5, 1])
    yield case(ordered, [0, 5, 0], [40, 10, 8])
    # Cells in any order, and intervals that each hold several cells.
    yield runs(draw(cells))
    yield case(draw(cells), [0, 15], [15, 25])
    yield case(ordered, [20, 0], [20, 20])
    # A grid from real geometry: 6 cameras, most of whose points fall outside it.
    grid = Grid((-20.0, -20.0, -3.0), (4.0, 4.0, 3.0), (10, 10, 2))
    yield camera_case(dtype, seed, feature_size=(2, 4), bins=6, channels=8, grid=grid)


def _arguments(
    dtype: torch.dtype,
    seed: int,
    shape: tuple[int, ...],
    channels: int,
    ranks: Ranks,
    bev_size: tuple[int, int, int],
) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    frames, cameras, _, rows, columns = shape
    depth = torch.randn(shape, generator=generator).softmax(2)
    feat = torch.randn(frames, cameras, rows, columns, channels, generator=generator)
    return {
        "depth": depth.to(dtype),
        "feat": feat.to(dtype),
        **ranks._asdict(),
        "bev_size": bev_size,
    }


def _int32(values: list[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)
