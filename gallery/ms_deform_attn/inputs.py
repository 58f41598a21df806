"""Arguments for `ms_deform_attn`: small ones for its contract, and those of a network."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch


def case(
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    *,
    batch: int = 2,
    levels: Sequence[tuple[int, int]] = ((100, 134), (50, 67), (25, 34), (13, 17)),
    queries: int = 300,
    heads: int = 8,
    channels: int = 32,
    points: int = 4,
    reach: float = 0.1,
) -> dict[str, Any]:
    """Give random arguments of `ms_deform_attn`, by default those of a decoder of DETR's size.

    Args:
        dtype: of all but the shapes and starts.
        seed: decides the values.
        batch: N.
        levels: height and width of each map.
        queries: Lq.
        heads: M.
        channels: D, of each head.
        points: P, sampled in each map.
        reach: how far beyond the maps positions lie.
    """
    generator = torch.Generator().manual_seed(seed)
    shapes = torch.tensor([*levels], dtype=torch.int64).reshape(-1, 2)
    sizes = shapes.prod(1)
    samples = (batch, queries, heads, len(levels), points)
    weights = torch.rand(samples, generator=generator, dtype=torch.float64).flatten(3)
    locations = torch.rand(*samples, 2, generator=generator, dtype=torch.float64)
    return {
        "value": torch.randn(
            batch, int(sizes.sum()), heads, channels, generator=generator, dtype=torch.float64
        ).to(dtype),
        "value_spatial_shapes": shapes,
        "level_start_index": sizes.cumsum(0) - sizes,
        "sampling_locations": (locations * (1 + 2 * reach) - reach).to(dtype),
        "attention_weights": weights.softmax(3).reshape(samples).to(dtype),
    }


def cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    """One case for each line of the contract that random arguments hardly meet."""
    small: dict[str, Any] = {"batch": 1, "queries": 3, "heads": 2, "channels": 3, "points": 2}
    yield case(dtype, seed, **small, levels=((5, 3), (1, 4), (2, 1)))
    # An empty map, between others.
    yield case(dtype, seed, **small, levels=((2, 3), (0, 4), (3, 2)))
    # Channels that fill no vector, and more than one.
    yield case(dtype, seed, **{**small, "channels": 19}, levels=((4, 4),))
    # Most positions are outside, some between the border and one pixel beyond.
    yield case(dtype, seed, **small, levels=((3, 3), (2, 2)), reach=0.4)
    wild = case(dtype, seed, **small, levels=((3, 3),))
    wild["sampling_locations"][0, 0, 0, 0, 0, 0] = math.inf
    wild["sampling_locations"][0, 1, 0, 0, 0, 1] = -1e4
    yield wild
