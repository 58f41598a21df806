"""`vision::ms_deform_attn`: multi-scale deformable attention."""

from collections.abc import Iterator
from typing import Annotated, Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

import opsmith
from opsmith import Starts, Total

from .inputs import cases


@opsmith.op("vision::ms_deform_attn", autograd="reference", parallel_dims=("N", "Lq"))
def ms_deform_attn(
    value: Float[Tensor, "N S M D"],
    value_spatial_shapes: Annotated[Int64[Tensor, "L 2"], Total("S", of="shapes")],
    level_start_index: Annotated[Int64[Tensor, "L"], Starts(of="value_spatial_shapes")],
    sampling_locations: Float[Tensor, "N Lq M L P 2"],
    attention_weights: Float[Tensor, "N Lq M L P"],
) -> Float[Tensor, "N Lq M*D"]:
    """For each query and head, weigh and add what is sampled at P positions of each of L maps.

    A map of height H and width W has its pixels' centres at ``(i + 0.5) / W``; a sample is taken
    bilinearly from the four pixels around, outside of the map there are zeros.

    Args:
        value: S pixels of all maps one after the other, each map row by row; M heads of D channels.
        value_spatial_shapes: height and width of each map.
        level_start_index: where each map begins in `value`.
        sampling_locations: x and y, from 0 to 1 across the map of the level.
        attention_weights: of the samples; used as they are.

    Returns:
        The channels of all heads, for each query.

    Source:
        Zhu et al. 2021, Deformable DETR, arXiv:2010.04159.
    """
    n, pixels, heads, channels = value.shape
    out = value.new_zeros(n, sampling_locations.shape[1], heads, channels)
    # (N, M, S + 1, D); the last pixel stands for all that are outside.
    padded = torch.nn.functional.pad(value, (0, 0, 0, 0, 0, 1)).permute(0, 2, 1, 3)
    for index, share in _corners(
        value_spatial_shapes, level_start_index, sampling_locations, pixels
    ):
        # An infinite weight of a pixel that is outside adds nothing.
        weights = (share * torch.where(index == pixels, 0, attention_weights)).flatten(3)
        # (N, M, Lq * L * P), as `padded` has its heads
        taken = index.permute(0, 2, 1, 3, 4).flatten(2)
        sampled = padded.gather(2, taken.unsqueeze(3).expand(-1, -1, -1, channels))
        sampled = sampled.unflatten(2, (index.shape[1], weights.shape[3]))
        out = out + (weights.permute(0, 2, 1, 3).unsqueeze(4) * sampled).sum(3).permute(0, 2, 1, 3)
    return out.flatten(2)


def _corners(
    shapes: Tensor, starts: Tensor, locations: Tensor, outside: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """The four pixels around each position, and how much of each is taken.

    Both are (N, Lq, M, L, P); a pixel beyond its map is number `outside`.
    """
    height, width = shapes[:, 0].unsqueeze(1), shapes[:, 1].unsqueeze(1)
    x = locations[..., 0] * width.to(locations.dtype) - 0.5
    y = locations[..., 1] * height.to(locations.dtype) - 0.5
    near = (x > -1) & (y > -1) & (x < width) & (y < height)
    # What is not a number, or too large for one, is not near either.
    x, y = torch.where(near, x, 0), torch.where(near, y, 0)
    left, top = x.detach().floor(), y.detach().floor()
    right_share, bottom_share = x - left, y - top
    for down in (0, 1):
        for right in (0, 1):
            row, column = top.to(torch.int64) + down, left.to(torch.int64) + right
            inside = near & (row >= 0) & (row < height) & (column >= 0) & (column < width)
            index = starts.unsqueeze(1) + row * width + column
            share_y = bottom_share if down else 1 - bottom_share
            share_x = right_share if right else 1 - right_share
            yield torch.where(inside, index, outside), torch.where(inside, share_y * share_x, 0)


ms_deform_attn.register_kernel("cpu", source="ms_deform_attn.cpp")


@ms_deform_attn.register_cases
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    yield from cases(dtype, seed)
