"""The pooling of BEVDet (Apache-2.0), as BEVFusion has it too: its CUDA, host code and all."""

from collections.abc import Iterator
from typing import Annotated, Any

import torch
from fetched import sources
from jaxtyping import Float32, Int32
from torch import Tensor

import opsmith
from opsmith import Extent, Index

ROOT = sources("HuangJunJie2017/BEVDet", "1bacecb07bce1d6731fafbda1e332c88ae87118b")


@opsmith.op("downstream::bev_pool_forward", autograd="reference")
def bev_pool_forward(
    x: Float32[Tensor, "N C"],
    geom_feats: Annotated[
        Int32[Tensor, "N 4"],
        Index("H", column=0),
        Index("W", column=1),
        Index("D", column=2),
        Index("B", column=3),
    ],
    interval_lengths: Annotated[Int32[Tensor, "I"], Extent(start="interval_starts", bound="N")],
    interval_starts: Annotated[Int32[Tensor, "I"], Index("N")],
    B: int,
    D: int,
    H: int,
    W: int,
) -> Float32[Tensor, "{B} {D} {H} {W} C"]:
    """Sum the points of each interval into the cell of its first point; no cell has two."""
    number = torch.arange(x.shape[0], device=x.device)
    starts, lengths = interval_starts.unsqueeze(1), interval_lengths.unsqueeze(1)
    within = (number >= starts) & (number < starts + lengths)  # (I, N)
    sums = torch.where(within.unsqueeze(2), x, 0).sum(1)
    h, w, d, b = geom_feats[interval_starts.long()].long().unbind(1)
    out = x.new_zeros(B * D * H * W, x.shape[1])
    return out.index_add(0, ((b * D + d) * H + h) * W + w, sums).reshape(B, D, H, W, x.shape[1])


bev_pool_forward.register_kernel(
    "cuda",
    source=opsmith.cuda(
        f"""
#include "{ROOT}/mmdet3d/ops/bev_pool/src/bev_pool_cuda.cu"
#include "{ROOT}/mmdet3d/ops/bev_pool/src/bev_pool.cpp"
"""
    ),
    api="torch",
)


@bev_pool_forward.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    """Points sorted by cell, as `bev_pool` of the project sorts them: an interval for each cell."""
    generator = torch.Generator().manual_seed(seed)
    for points, channels, sizes in (
        (1, 1, (1, 1, 1, 1)),
        (40, 5, (2, 1, 3, 4)),
        (300, 8, (1, 2, 9, 7)),
    ):
        b, d, h, w = sizes
        cells = torch.randint(b * d * h * w, (points,), generator=generator).sort().values
        _, lengths = cells.unique_consecutive(return_counts=True)
        place = [cells // w % h, cells % w, cells // (w * h) % d, cells // (w * h * d)]
        yield {
            "x": torch.randn(points, channels, generator=generator),
            "geom_feats": torch.stack(place, 1).int(),
            "interval_lengths": lengths.int(),
            "interval_starts": (lengths.cumsum(0) - lengths).int(),
            "B": b, "D": d, "H": h, "W": w,
        }  # fmt: skip
