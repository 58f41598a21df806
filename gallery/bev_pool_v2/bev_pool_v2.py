"""`bev::bev_pool_v2` and its backward, each an operator of its own."""

from collections.abc import Iterator
from typing import Annotated, Any

import torch
from jaxtyping import Float, Int32
from torch import Tensor

import opsmith
from opsmith import Extent, Index


@opsmith.op(
    "bev::bev_pool_v2",
    parallel_dims=("C",),
    linear_in=("depth", "feat"),
    autograd="reference",
)
def bev_pool_v2(
    depth: Float[Tensor, "B N D H W"],
    feat: Float[Tensor, "B N H W C"],
    ranks_depth: Annotated[Int32[Tensor, "P"], Index("B*N*D*H*W")],
    ranks_feat: Annotated[Int32[Tensor, "P"], Index("B*N*H*W")],
    ranks_bev: Annotated[Int32[Tensor, "P"], Index("B*bev_size[0]*bev_size[1]*bev_size[2]")],
    interval_starts: Annotated[Int32[Tensor, "I"], Index("P")],
    interval_lengths: Annotated[Int32[Tensor, "I"], Extent(start="interval_starts", bound="P")],
    bev_size: tuple[int, int, int],
) -> Float[Tensor, "B {bev_size[0]} {bev_size[1]} {bev_size[2]} C"]:
    """Sum depth-weighted camera features into bird's-eye-view cells.

    Each point p that an interval holds adds ``depth[ranks_depth[p]] * feat[ranks_feat[p]]`` to the
    cell ``ranks_bev[p]``. Points in no interval add nothing, points in several add as often.

    Args:
        depth: the weight of each of D depth bins, for N cameras with H x W pixels.
        feat: the features of each pixel, channels last.
        ranks_depth: for each point, its flat index into `depth`.
        ranks_feat: for each point, its pixel, a flat index into the first four dims of `feat`.
        ranks_bev: for each point, its cell, ``((b*Z + z)*Y + y)*X + x``. Sorted is fast.
        interval_starts: the first point of each interval.
        interval_lengths: how many points each interval holds.
        bev_size: the number of cells along z, y and x.

    Returns:
        The sums, channels last; zero where no point falls.

    Source:
        BEVDet, ``mmdet3d/ops/bev_pool_v2`` (Huang and Huang 2022, arXiv:2211.17111).
    """
    times = _holders(interval_starts, interval_lengths, ranks_depth.shape[0])
    scale = _held(depth.flatten().index_select(0, ranks_depth), times) * times
    points = scale.unsqueeze(1) * _held(feat.flatten(0, 3).index_select(0, ranks_feat), times)
    z, y, x = bev_size
    out = feat.new_zeros(feat.shape[0] * z * y * x, feat.shape[4]).index_add(0, ranks_bev, points)
    return out.reshape(feat.shape[0], z, y, x, feat.shape[4])


@opsmith.op("bev::bev_pool_v2_backward", autograd="reference")
def bev_pool_v2_backward(
    grad: Float[Tensor, "B Z Y X C"],
    depth: Float[Tensor, "B N D H W"],
    feat: Float[Tensor, "B N H W C"],
    ranks_depth: Annotated[Int32[Tensor, "P"], Index("B*N*D*H*W")],
    ranks_feat: Annotated[Int32[Tensor, "P"], Index("B*N*H*W")],
    ranks_bev: Annotated[Int32[Tensor, "P"], Index("B*Z*Y*X")],
    interval_starts: Annotated[Int32[Tensor, "I"], Index("P")],
    interval_lengths: Annotated[Int32[Tensor, "I"], Extent(start="interval_starts", bound="P")],
) -> tuple[Float[Tensor, "B N D H W"], Float[Tensor, "B N H W C"]]:
    """Give the gradients of `bev_pool_v2` with respect to `depth` and `feat`.

    Args:
        grad: the gradient of the pooled features.
        depth: as `bev_pool_v2` has it, and so the others.
        feat: see `depth`.
        ranks_depth: see `depth`.
        ranks_feat: see `depth`.
        ranks_bev: see `depth`.
        interval_starts: see `depth`.
        interval_lengths: see `depth`.

    Returns:
        The gradient of `depth` and the gradient of `feat`.
    """
    times = _holders(interval_starts, interval_lengths, ranks_depth.shape[0])
    pooled = _held(grad.flatten(0, 3).index_select(0, ranks_bev), times)
    seen = _held(feat.flatten(0, 3).index_select(0, ranks_feat), times)
    products = (pooled * seen).sum(1) * times
    depth_grad = torch.zeros_like(depth).flatten().index_add(0, ranks_depth, products)
    scale = _held(depth.flatten().index_select(0, ranks_depth), times) * times
    feat_grad = torch.zeros_like(feat).flatten(0, 3)
    feat_grad = feat_grad.index_add(0, ranks_feat, scale.unsqueeze(1) * pooled)
    return depth_grad.reshape(depth.shape), feat_grad.reshape(feat.shape)


def _holders(starts: Tensor, lengths: Tensor, points: int) -> Tensor:
    """How many intervals hold each point."""
    steps = starts.new_zeros(points + 1)
    steps = steps.index_add(0, starts, torch.ones_like(starts))
    steps = steps.index_add(0, starts + lengths, torch.full_like(starts, -1))
    return steps.cumsum(0, dtype=steps.dtype)[:points]


def _held(points: Tensor, times: Tensor) -> Tensor:
    """What points in no interval have in place of their values: zero, and not infinity times it."""
    held = (times > 0).reshape(-1, *[1] * (points.dim() - 1))
    return torch.where(held, points, torch.zeros_like(points))


bev_pool_v2.register_kernel("cpu", source="bev_pool_v2.cpp")
bev_pool_v2_backward.register_kernel("cpu", source="bev_pool_v2_backward.cpp")
bev_pool_v2.register_kernel("cuda", source="bev_pool_v2.cu")
bev_pool_v2_backward.register_kernel("cuda", source="bev_pool_v2_backward.cu")
bev_pool_v2.register_backward(bev_pool_v2_backward, grads={"depth": 0, "feat": 1})


@bev_pool_v2.register_cases
def _cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    from .inputs import camera_case, cases  # whoever calls it needs no cameras

    yield from cases(dtype, seed)
    # A network on the road; its gradient takes the backward along.
    if dtype is torch.float32:
        yield camera_case(dtype, seed)


@bev_pool_v2_backward.register_cases
def _backward_cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    from .inputs import cases

    generator = torch.Generator().manual_seed(seed)
    for case in cases(dtype, seed):
        frames, channels = case["feat"].shape[0], case["feat"].shape[4]
        shape = (frames, *case.pop("bev_size"), channels)
        yield {"grad": torch.randn(shape, generator=generator).to(dtype), **case}
