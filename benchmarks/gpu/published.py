"""The published algorithm of bev_pool_v2, to compare the gallery's with: float32, atomics, CUDA."""

from typing import Any

import torch
from jaxtyping import Float32, Int32
from torch import Tensor

import opsmith


@opsmith.op("gpu::published_pool")
def published_pool(
    depth: Float32[Tensor, "B N D H W"],
    feat: Float32[Tensor, "B N H W C"],
    ranks_depth: Int32[Tensor, "P"],
    ranks_feat: Int32[Tensor, "P"],
    ranks_bev: Int32[Tensor, "P"],
    interval_starts: Int32[Tensor, "I"],
    interval_lengths: Int32[Tensor, "I"],
    bev_size: tuple[int, int, int],
) -> Float32[Tensor, "B {bev_size[0]} {bev_size[1]} {bev_size[2]} C"]:
    """Pool points, which intervals hold once each, into cells."""
    points = depth.flatten()[ranks_depth.long()].unsqueeze(1)
    points = points * feat.flatten(0, 3)[ranks_feat.long()]
    cells = feat.new_zeros(feat.shape[0] * bev_size[0] * bev_size[1] * bev_size[2], feat.shape[4])
    out = cells.index_add(0, ranks_bev.long(), points)
    return out.reshape(feat.shape[0], *bev_size, feat.shape[4])


@opsmith.op("gpu::published_pool_backward")
def published_pool_backward(
    grad: Float32[Tensor, "B Z Y X C"],
    depth: Float32[Tensor, "B N D H W"],
    feat: Float32[Tensor, "B N H W C"],
    ranks_depth: Int32[Tensor, "P"],
    ranks_feat: Int32[Tensor, "P"],
    ranks_bev: Int32[Tensor, "P"],
    interval_starts: Int32[Tensor, "I"],
    interval_lengths: Int32[Tensor, "I"],
) -> tuple[Float32[Tensor, "B N D H W"], Float32[Tensor, "B N H W C"]]:
    """Give the gradients; the intervals are those of `sorted_by_pixel`."""
    from_cell = grad.flatten(0, 3)[ranks_bev.long()]
    pixels, weights = feat.flatten(0, 3), depth.flatten()[ranks_depth.long()]
    grad_depth = torch.zeros_like(depth).flatten()
    grad_depth = grad_depth.index_add(
        0, ranks_depth.long(), (from_cell * pixels[ranks_feat.long()]).sum(1)
    )
    grad_feat = torch.zeros_like(pixels)
    grad_feat = grad_feat.index_add(0, ranks_feat.long(), from_cell * weights.unsqueeze(1))
    return grad_depth.reshape(depth.shape), grad_feat.reshape(feat.shape)


published_pool.register_kernel("cuda", source="published_pool.cu")
published_pool_backward.register_kernel("cuda", source="published_pool_backward.cu")


def forward(case: dict[str, Any]) -> Tensor:
    """Pool as the published wrapper does, which casts whatever comes to float32."""
    return published_pool(**{**case, "depth": case["depth"].float(), "feat": case["feat"].float()})


def backward(case: dict[str, Any], grad: Tensor) -> tuple[Tensor, Tensor]:
    """Give both gradients as the published wrapper does: points sorted by pixel in each call."""
    order = case["ranks_feat"].argsort()
    ranks = {name: case[name][order] for name in ("ranks_depth", "ranks_feat", "ranks_bev")}
    pixels = ranks["ranks_feat"]
    first = torch.ones(len(pixels), dtype=torch.bool, device=pixels.device)
    first[1:] = pixels[1:] != pixels[:-1]
    starts = first.nonzero().flatten().int()
    ends = torch.cat([starts[1:], starts.new_tensor([len(pixels)])])
    depth, feat = case["depth"].float(), case["feat"].float()
    return published_pool_backward(
        grad.float(), depth, feat, **ranks, interval_starts=starts, interval_lengths=ends - starts
    )
