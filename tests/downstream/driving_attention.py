"""Kernels of DrivingSDK (BSD-3) that attend to pixels of several scales, and pool them."""

import itertools
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
import torch
from driving import register
from jaxtyping import Float32, Int32
from torch import Tensor

import opsmith
from opsmith import Index


def randoms(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@opsmith.op("driving::run_geometric_kernel_attention")
def run_geometric_kernel_attention(
    value: Float32[Tensor, "B H K D"],
    shapes: Int32[Tensor, "L 2"],
    starts: Int32[Tensor, "L"],
    places: Float32[Tensor, "B Q H L P 2"],
    weights: Float32[Tensor, "B Q H L P"],
) -> Float32[Tensor, "B Q H D"]:
    """Add the pixels at places on each level, as much as each one weighs."""
    b, h = value.shape[:2]
    last = shapes[:, None] - 1
    x = places[..., 0].int().clamp(min=0).minimum(last[..., 1])
    y = places[..., 1].int().clamp(min=0).minimum(last[..., 0])
    at = (starts[:, None] + y * shapes[:, 1:] + x).long()
    batch, head = torch.arange(b)[:, None, None, None, None], torch.arange(h)[:, None, None]
    return (value[batch, head, at] * weights[..., None]).sum((3, 4))


register(
    run_geometric_kernel_attention,
    "geometric_kernel_attention/op_kernel/geometric_kernel_attention.cpp",
    fields="""int32_t batchSize, numKeys, numHeads, numQueries, numLevels, numPoints, dim,
      alignLevels, alignDim, totalTaskNum, alignTaskNum, tailNum;
  uint32_t blockDim, taskNumPerScore, taskNumPerLcore, scoreNum, lcoreNum;
  uint64_t ubTotalSize;""",
    tiling="""
  t.batchSize = a.B, t.numKeys = a.K, t.numHeads = a.H, t.numQueries = a.Q, t.numLevels = a.L;
  t.numPoints = a.P, t.dim = a.D, t.alignLevels = rounded_up(a.L, 8);
  t.alignDim = rounded_up(a.D, 8);
  t.totalTaskNum = a.B * a.Q * a.H, t.alignTaskNum = rounded_up(t.totalTaskNum, 8);
  t.tailNum = t.alignTaskNum - t.totalTaskNum, t.ubTotalSize = kMemory;
  t.taskNumPerScore = t.alignTaskNum / kCores / 8 * 8, t.taskNumPerLcore = t.taskNumPerScore + 8;
  t.scoreNum = (kCores * t.taskNumPerLcore - t.alignTaskNum) / 8;
  t.lcoreNum = kCores - t.scoreNum;
  blocks = t.blockDim = t.taskNumPerScore == 0 ? t.lcoreNum : kCores;
  key = 1;
  zero(a.out);
""",
    arguments="value shapes starts places weights out",
    before="""#define DTYPE_VALUE float
#define DTYPE_SPATIAL_SHAPES int32_t
#define DTYPE_LEVEL_START_INDEX int32_t
#define DTYPE_SAMPLING_LOCATIONS float
#define DTYPE_ATTENTION_WEIGHTS float
#define DTYPE_OUTPUT float""",
)


@run_geometric_kernel_attention.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = randoms(seed)
    for b, h, d, q, sizes, p in (
        (1, 2, 8, 4, ((3, 4),), 2),
        (2, 4, 16, 20, ((6, 8), (3, 4)), 4),
        (1, 3, 8, 3, ((5, 5),), 3),
    ):
        shapes = torch.tensor(sizes, dtype=torch.int32)
        areas = shapes.prod(1)
        places = torch.rand(b, q, h, len(sizes), p, 2, generator=random) * 10 - 1
        yield {
            "value": torch.rand(b, h, int(areas.sum()), d, generator=random),
            "shapes": shapes,
            "starts": (areas.cumsum(0) - areas).int(),
            "places": places,
            "weights": torch.rand(places.shape[:-1], generator=random),
        }


@opsmith.op("driving::run_deformable_aggregation")
def run_deformable_aggregation(
    features: Float32[Tensor, "B F C"],
    shapes: Int32[Tensor, "N S 2"],
    starts: Int32[Tensor, "N S"],
    places: Float32[Tensor, "B A P N 2"],
    weights: Float32[Tensor, "B A P N S G"],
) -> Float32[Tensor, "B A C"]:
    """Add what each camera sees of an anchor's points, on each scale, group by group."""
    b, _, c = features.shape
    seen = ((places > 0) & (places < 1)).all(-1)
    out = features.new_zeros(b, places.shape[1], c)
    batch = torch.arange(b)[:, None, None]
    for camera, scale in np.ndindex(*starts.shape):
        h, w = shapes[camera, scale].tolist()
        x = places[:, :, :, camera, 0] * w - 0.5
        y = places[:, :, :, camera, 1] * h - 0.5
        weight = weights[:, :, :, camera, scale].repeat_interleave(c // weights.shape[-1], -1)
        for px, py in itertools.product((x.floor(), x.floor() + 1), (y.floor(), y.floor() + 1)):
            inside = seen[..., camera] & (px >= 0) & (px < w) & (py >= 0) & (py < h)
            part = torch.where(inside, (1 - (x - px).abs()) * (1 - (y - py).abs()), 0)
            at = (py * w + px).clamp(0, h * w - 1).long() + int(starts[camera, scale])
            out += (features[batch, at] * part[..., None] * weight).sum(2)
    return out


register(
    run_deformable_aggregation,
    "deformable_aggregation/op_kernel/deformable_aggregation.cpp",
    fields="""uint32_t bs, numFeats, numEmbeds, numAnchors, numPoints, numCams, numScales,
      numGroups, cAligned, coreNum;""",
    tiling="""
  t.bs = a.B, t.numFeats = a.F, t.numEmbeds = a.C, t.numAnchors = a.A, t.numPoints = a.P;
  t.numCams = a.N, t.numScales = a.S, t.numGroups = a.G, t.cAligned = rounded_up(a.C, 8);
  t.coreNum = kCores;
""",
    arguments="features shapes starts places weights out",
    before="#define DTYPE_MC_MS_FEAT float",
)


@run_deformable_aggregation.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = randoms(seed)
    for b, c, anchors, p, cameras, sizes in (
        (1, 8, 3, 2, 1, ((3, 4),)),
        (2, 64, 50, 3, 2, ((6, 8), (3, 4))),
        (1, 16, 7, 4, 3, ((5, 5),)),
    ):
        shapes = torch.tensor(sizes, dtype=torch.int32).expand(cameras, -1, -1).contiguous()
        areas = shapes.prod(2)
        weights = torch.rand(b, anchors, p, cameras, len(sizes), 8, generator=random)
        yield {
            "features": torch.rand(b, int(areas.sum()), c, generator=random),
            "shapes": shapes,
            "starts": (areas.flatten().cumsum(0).reshape(areas.shape) - areas).int(),
            "places": torch.rand(b, anchors, p, cameras, 2, generator=random) * 1.2 - 0.1,
            "weights": weights,
        }


POOL: dict[str, Any] = {
    "struct": "BEVPoolV3TilingData",
    "fields": """uint64_t usedCoreNum, avgTaskNum, tailTaskNum, totalTaskNum, avgRankNum,
      tailRankNum, channel;""",
}
POOL_TILING = """
  t.avgRankNum = std::min<uint64_t>(most, a.N), t.totalTaskNum = divided_up(a.N, t.avgRankNum);
  blocks = t.usedCoreNum = std::min(kCores, t.totalTaskNum);
  t.avgTaskNum = t.totalTaskNum / blocks, t.tailTaskNum = t.totalTaskNum % blocks;
  t.tailRankNum = a.N - (t.totalTaskNum - 1) * t.avgRankNum, t.channel = a.C;
  zero(a.out);
"""


@opsmith.op("driving::run_bev_pool_v3")
def run_bev_pool_v3(
    depth: Float32[Tensor, "P"],
    feat: Float32[Tensor, "F C"],
    ranks_depth: Annotated[Int32[Tensor, "N"], Index("P")],
    ranks_feat: Annotated[Int32[Tensor, "N"], Index("F")],
    ranks_bev: Annotated[Int32[Tensor, "N"], Index("V")],
    V: int,
) -> Float32[Tensor, "{V} C"]:
    """Add points, each its feature times its depth, to their cells."""
    points = depth[ranks_depth.long()][:, None] * feat[ranks_feat.long()]
    return feat.new_zeros(V, feat.shape[1]).index_add(0, ranks_bev.long(), points)


@opsmith.op("driving::run_bev_pool_v3_without_depth")
def run_bev_pool_v3_without_depth(
    feat: Float32[Tensor, "N C"], ranks_bev: Annotated[Int32[Tensor, "N"], Index("V")], V: int
) -> Float32[Tensor, "{V} C"]:
    """Add points to their cells."""
    return feat.new_zeros(V, feat.shape[1]).index_add(0, ranks_bev.long(), feat)


register(
    run_bev_pool_v3,
    "bev_pool_v3/op_kernel/bev_pool_v3.cpp",
    tiling=f"  key = 1;\n  const uint64_t most = 1024;{POOL_TILING}",
    arguments="depth feat ranks_depth ranks_feat ranks_bev out",
    **POOL,
)
register(
    run_bev_pool_v3_without_depth,
    "bev_pool_v3/op_kernel/bev_pool_v3.cpp",
    tiling=f"""
  key = 0;
  const uint64_t most = (kMemory - 10 * 1024) / (4 * (a.C + 1) * 2) / 8 * 8;{POOL_TILING}""",
    arguments="@nullptr feat @nullptr @nullptr ranks_bev out",
    **POOL,
)


@run_bev_pool_v3.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = randoms(seed)
    for case in run_bev_pool_v3_without_depth.cases[0](dtype, seed):
        count, pixels = len(case["feat"]), 1 + len(case["feat"]) // 4
        yield {
            "depth": torch.rand(count, generator=random),
            "feat": torch.rand(pixels, case["feat"].shape[1], generator=random),
            "ranks_depth": torch.randperm(count, generator=random).int(),
            "ranks_feat": torch.randint(pixels, (count,), generator=random, dtype=torch.int32),
            "ranks_bev": case["ranks_bev"],
            "V": case["V"],
        }


@run_bev_pool_v3_without_depth.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = randoms(seed)
    for points, channels, cells in ((5, 8, 3), (100, 16, 40), (3000, 8, 500), (81500, 8, 9000)):
        yield {
            "feat": torch.rand(points, channels, generator=random),
            "ranks_bev": torch.randint(cells, (points,), generator=random, dtype=torch.int32),
            "V": cells,
        }
