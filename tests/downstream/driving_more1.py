"""Kernels of DrivingSDK (BSD-3) that weight neighbours, scatter gradients, and scatter points."""

from collections.abc import Iterator
from typing import Annotated, Any

import torch
from driving import register
from jaxtyping import Float32, Int16, Int32, Int64, UInt8
from torch import Tensor

import opsmith
from opsmith import Index


def randoms(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@opsmith.op("driving::run_graph_softmax_grad")
def run_graph_softmax_grad(
    index: Annotated[Int32[Tensor, "E"], Index("N")],
    softmax: Float32[Tensor, "E 8"],
    grad: Float32[Tensor, "E 8"],
    N: int,
) -> Float32[Tensor, "E 8"]:
    """Give the gradient of the softmax over the edges of each node."""
    at = index.long()[:, None].expand_as(grad)
    sums = grad.new_zeros(N, 8).scatter_add(0, at, softmax * grad)
    return softmax * grad - sums.gather(0, at) * softmax


register(
    run_graph_softmax_grad,
    "graph_softmax/op_kernel/graph_softmax_grad.cpp",
    fields="""int32_t edgeNum, alignTaskNum, tailNum, nodeNum, taskNumPerLoop, taskLoop,
      tailCoreNum;
  uint32_t blockDim, taskNumPerCore;
  uint64_t ubTotalSize;""",
    tiling="""
  t.edgeNum = a.E, t.nodeNum = a.N, t.blockDim = kCores, t.ubTotalSize = kMemory;
  t.alignTaskNum = rounded_up(a.E, kCores), t.tailNum = t.alignTaskNum - t.edgeNum;
  t.taskNumPerCore = t.alignTaskNum / kCores, t.tailCoreNum = kCores - t.tailNum;
  t.taskNumPerLoop = rounded_up(uint64_t(kMemory * 0.8f) / (8 * 4 * 5), 8);
  t.taskLoop = divided_up(t.taskNumPerCore, t.taskNumPerLoop);
  if (t.taskNumPerCore <= uint32_t(t.taskNumPerLoop))
    t.taskNumPerLoop = t.taskNumPerCore, t.taskLoop = 1;
  key = 1;
  const GM_ADDR sums = memory.room(a.N * 8 * 4);
  std::memset(sums, 0, a.N * 8 * 4);
""",
    arguments="index softmax grad @sums out",
    before="""#define DTYPE_INDEX int32_t
#define DTYPE_SOFTMAX_OUTPUT float
#define DTYPE_GRAD_OUTPUT float
#define DTYPE_SRC_GRAD float
#define DTYPE_REDUCE_SUM float""",
)


@run_graph_softmax_grad.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = randoms(seed)
    for edges, nodes in ((5, 3), (80, 80), (333, 20), (40007, 20000)):
        index = torch.randint(nodes, (edges,), generator=random, dtype=torch.int32)
        softmax, grad = torch.rand(2, edges, 8, generator=random).unbind()
        yield {"index": index, "softmax": softmax, "grad": grad, "N": nodes}


@opsmith.op("driving::run_gather_nms3d_mask")
def run_gather_nms3d_mask(
    mask: Int16[Tensor, "N M"],
) -> tuple[Int16[Tensor, "N"], Int16[Tensor, "1"]]:
    """Give the boxes that no box kept before suppresses, and how many these are."""
    count = len(mask)
    left, keep = torch.ones(count, dtype=torch.int16), torch.zeros(count, dtype=torch.int16)
    chosen = 0
    left = mask[0, :count].clone()
    for i in range(count):
        if left[i] == 1:
            keep[chosen] = i
            chosen += 1
            left = left & mask[i, :count]
    return keep, torch.tensor([chosen], dtype=torch.int16)


register(
    run_gather_nms3d_mask,
    "gather_nms3d_mask/op_kernel/gather_nms3d_mask.cpp",
    struct="GatherNms3dMaskTilingData",
    fields="uint32_t box_num, mask_num;",
    tiling="blocks = 1, t.box_num = a.N, t.mask_num = a.M;",
    arguments="mask out0 out1",
)


@run_gather_nms3d_mask.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    """Masks as `nms3d` leaves them: 1 for a box that stays, in rows of a multiple of 16."""
    random = randoms(seed)
    for count in (1, 16, 37, 200):
        mask = torch.rand(count, -(-count // 16) * 16, generator=random) < 0.9
        mask[0, 0] = True
        yield {"mask": mask.to(torch.int16)}


@opsmith.op("driving::run_assign_score_withk")
def run_assign_score_withk(
    points: Float32[Tensor, "B O N M"],
    centers: Float32[Tensor, "B O N M"],
    scores: Float32[Tensor, "B P K M"],
    neighbours: Annotated[Int64[Tensor, "B P K"], Index("N")],
) -> Float32[Tensor, "B O P K"]:
    """Weight the difference of each neighbour from its centre; the wrapper permutes before."""
    batch = torch.arange(len(points))[:, None, None]
    near = points.permute(0, 2, 3, 1)[batch, neighbours]
    center = centers.permute(0, 2, 3, 1)[batch, neighbours[:, :, :1]]
    return ((near - center) * scores[..., None]).sum(3).permute(0, 3, 1, 2)


register(
    run_assign_score_withk,
    "assign_score_withk/op_kernel/assign_score_withk.cpp",
    fields="""uint32_t numCore;
  uint64_t npointPerCore, npointRemained;
  uint32_t aggregate, batchSize, nsource, npoint, numWeights, numNeighbors, numFeatures;""",
    tiling="""
  const uint64_t tasks = a.B * a.O * a.P;
  t.numCore = kCores, t.npointPerCore = tasks / kCores, t.npointRemained = tasks % kCores;
  t.batchSize = a.B, t.nsource = a.N, t.npoint = a.P, t.numWeights = a.M;
  t.numNeighbors = a.K, t.numFeatures = a.O;
""",
    arguments="points centers scores neighbours out",
)


@run_assign_score_withk.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = randoms(seed)
    for b, o, n, m, p, k in ((1, 1, 4, 8, 2, 2), (2, 3, 12, 5, 9, 4), (2, 16, 20, 16, 10, 9)):
        points, centers = torch.rand(2, b, o, n, m, generator=random).unbind()
        yield {
            "points": points,
            "centers": centers,
            "scores": torch.rand(b, p, k, m, generator=random),
            "neighbours": torch.randint(n, (b, p, k), generator=random),
        }


@opsmith.op("driving::run_border_align_grad")
def run_border_align_grad(
    grad: Float32[Tensor, "B C R 4"],
    boxes: Float32[Tensor, "B R 4"],
    most: Int32[Tensor, "B C R 4"],
    H: int,
    W: int,
    pooled: int,
) -> Float32[Tensor, "B 4*C {H} {W}"]:
    """Add each border's gradient to the pixels around its greatest sample."""
    b, c, _, _ = grad.shape
    x1, y1, x2, y2 = (edge[:, None] for edge in boxes.unbind(2))
    dx, dy = (x2 - x1) / pooled, (y2 - y1) / pooled
    out = grad.new_zeros(b, 4, c, H * W)
    for i, (x, y, sx, sy) in enumerate(
        ((x1, y1, dx, 0), (x1, y1, 0, dy), (x2, y2, -dx, 0), (x2, y2, 0, -dy))
    ):
        x, y = x + sx * most[..., i], y + sy * most[..., i]
        inside = (y >= -1) & (y <= H) & (x >= -1) & (x <= W)
        x, y = x.clamp(0, W - 1), y.clamp(0, H - 1)
        left, top = x.floor(), y.floor()
        for px, wx in ((left, 1 - (x - left)), ((left + 1).clamp(max=W - 1), x - left)):
            for py, wy in ((top, 1 - (y - top)), ((top + 1).clamp(max=H - 1), y - top)):
                part = torch.where(inside, wx * wy * grad[..., i], 0)
                out[:, i].scatter_add_(2, (py * W + px).long(), part)
    return out.reshape(b, 4 * c, H, W)


register(
    run_border_align_grad,
    "border_align/op_kernel/border_align_grad.cpp",
    fields="""uint32_t channels, boxSize, height, width;
  int64_t coreCompNum, taskLast;
  uint32_t poolSize;
  int64_t batchSize;""",
    tiling="""
  const uint64_t tasks = a.B * a.C * a.R;
  t.channels = a.C, t.boxSize = a.R, t.height = a.H, t.width = a.W;
  t.coreCompNum = tasks / kCores, t.taskLast = tasks % kCores;
  t.poolSize = a.pooled, t.batchSize = a.B;
  zero(a.out);
""",
    arguments="grad boxes most out",
    before="""#define DTYPE_GRADOUT float
#define DTYPE_BOXES float
#define DTYPE_ARGMAXIDX int32_t
#define DTYPE_GRADINPUT float""",
)


@run_border_align_grad.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = randoms(seed)
    for b, c, h, w, pooled, before in (
        (1, 2, 4, 4, 3, 0.0),
        (2, 16, 5, 8, 4, 0.0),
        (1, 4, 6, 6, 3, 3.0),
    ):
        boxes = torch.rand(b, h * w, 4, generator=random)
        boxes[..., :2] *= torch.tensor([w, h])
        boxes[..., 2:] += boxes[..., :2]
        shape = (b, c, h * w, 4)
        yield {
            "grad": torch.rand(shape, generator=random),
            "boxes": boxes - before,
            "most": torch.randint(pooled + 1, shape, generator=random, dtype=torch.int32),
            "H": h, "W": w, "pooled": pooled,
        }  # fmt: skip


@opsmith.op("driving::run_knn")
def run_knn(
    xyz: Float32[Tensor, "B 3 N"], centers: Float32[Tensor, "B M 3"], k: int
) -> tuple[Float32[Tensor, "B M {k}"], Int32[Tensor, "B M {k}"]]:
    """Give the nearest points of each centre, and how far these are, squared."""
    x, y, z = (xyz[:, None] - centers[..., None]).square().unbind(2)
    distances, order = (x + y + z).sort(dim=-1, stable=True)
    return distances[..., :k].contiguous(), order[..., :k].int().contiguous()


register(
    run_knn,
    "knn/op_kernel/knn.cpp",
    fields="""uint32_t batch, nPoint, nSource, coreNum;
  bool isFromKnn;
  int32_t k;""",
    tiling="""
  t.batch = a.B, t.nPoint = a.M, t.nSource = a.N, t.coreNum = kCores, t.isFromKnn = true;
  t.k = a.k;
  zero(a.out0), zero(a.out1);
""",
    arguments="xyz centers out0 out1",
)


@run_knn.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = randoms(seed)
    for b, n, m, k in ((1, 384, 8, 5), (2, 40, 7, 3), (1, 1000, 50, 40), (2, 3000, 16, 99)):
        xyz, centers = torch.rand(b, 3, n, generator=random), torch.rand(b, m, 3, generator=random)
        yield {"xyz": xyz, "centers": centers, "k": k}


def scattered(seed: int) -> Iterator[tuple[torch.Generator, Tensor, Tensor, tuple[int, ...]]]:
    """Give where the points of each voxel begin, in an order of points by voxel."""
    random = randoms(seed)
    for points, voxels, channels in (
        (8, 2, 8),
        (9, 3, 5),
        (200, 90, 16),
        (300, 41, 13),
        (2100, 2, 8),
    ):
        more = torch.randint(voxels, (points - voxels,), generator=random)
        voxel = torch.cat([torch.arange(voxels), more]).sort().values
        starts = torch.searchsorted(voxel, torch.arange(voxels)).int()
        order = torch.randperm(points, generator=random).int()
        yield random, starts, order, (points, voxels, channels)


def voxels(starts: Tensor, order: Tensor) -> Tensor:
    """Give the voxel of each point."""
    voxel = torch.searchsorted(starts, torch.arange(len(order)), right=True) - 1
    return torch.empty_like(voxel).index_put((order.long(),), voxel)


SCATTER: dict[str, Any] = {
    "fields": """uint32_t totalPointNum, totalVoxelNum, featsDim, pointFeatsNum, voxelNumPerCore,
      voxelNumLastCore, voxelFeatsNumPerCore, voxelFeatsNumLastCore, alignedNum, featsDimAligned,
      availablePointNum;
  uint64_t maskNum;
  uint32_t maskDim, maskDimAligned, maskDimAlignedB16, blockLen, blockLenPad, blockLenMask,
      repeatTimes, usedCoreNum;
  bool isFeatsAligned;""",
}
SCATTER_TILING = """
  t.totalPointNum = a.P, t.totalVoxelNum = a.V, t.featsDim = a.C, t.pointFeatsNum = a.P * a.C;
  t.voxelNumPerCore = divided_up(a.V, kCores);
  blocks = t.usedCoreNum = divided_up(a.V, t.voxelNumPerCore);
  t.voxelNumLastCore = a.V - t.voxelNumPerCore * (blocks - 1);
  t.voxelFeatsNumPerCore = t.voxelNumPerCore * a.C;
  t.voxelFeatsNumLastCore = t.voxelNumLastCore * a.C;
  t.alignedNum = 8, t.featsDimAligned = rounded_up(a.C, 8), t.blockLen = t.featsDimAligned / 8;
  t.isFeatsAligned = a.C % 8 == 0;
  if (!t.isFeatsAligned) t.blockLenPad = a.C * 4;
  if (key == 102) {
    t.maskDim = divided_up(a.C, 8), t.maskDimAligned = rounded_up(t.maskDim, 32);
    t.maskDimAlignedB16 = t.maskDimAligned / 2, t.maskNum = t.maskDim * a.P;
    t.blockLenMask = t.maskDim, t.repeatTimes = (a.C + 64) / 64;
  }
  t.availablePointNum = (kMemory - 20 * 1024 + 96 - 2 * t.maskDimAligned - t.featsDimAligned * 4) /
                        (t.featsDimAligned * 4);
"""


@opsmith.op("driving::run_dynamic_voxelization")
def run_dynamic_voxelization(
    points: Float32[Tensor, "F N"],
    first: Float32[Tensor, "3"],
    size: Float32[Tensor, "3"],
    grid: int,
) -> Int32[Tensor, "3 N"]:
    """Give the voxel of each point, z first, or -1; the wrapper transposes before and after."""
    at = ((points[:3] - first[:, None]) / size[:, None]).floor()
    inside = ((at >= 0) & (at < grid)).all(0)
    return torch.where(inside, at, -1).flip(0).int()


register(
    run_dynamic_voxelization,
    "dynamic_voxelization/op_kernel/dynamic_voxelization.cpp",
    struct="DynamicVoxTilingData",
    fields="""uint32_t core_num, points_num_in_core, points_num_in_last_core, pts_num, pts_feature;
  float coors_min_x, coors_min_y, coors_min_z, voxel_x, voxel_y, voxel_z;
  int32_t grid_x, grid_y, grid_z;""",
    tiling="""
  blocks = t.core_num = kCores / 2;  // GetCoreNumAic
  t.points_num_in_core = a.N / blocks;
  t.points_num_in_last_core = a.N - t.points_num_in_core * (blocks - 1);
  t.pts_num = a.N, t.pts_feature = a.F;
  const float *first = a.first.data(), *size = a.size.data();
  t.coors_min_x = first[0], t.coors_min_y = first[1], t.coors_min_z = first[2];
  t.voxel_x = size[0], t.voxel_y = size[1], t.voxel_z = size[2];
  t.grid_x = t.grid_y = t.grid_z = a.grid;
  zero(a.out);
""",
    arguments="points out",
    workspace="memory.room(64)",
)


@run_dynamic_voxelization.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = randoms(seed)
    for points in (20, 1000, 5003):
        yield {
            "points": torch.rand(4, points, generator=random) * 12 - 1,
            "first": torch.tensor([0.0, 0.5, -0.5]),
            "size": torch.tensor([1.0, 0.5, 2.0]),
            "grid": 8,
        }


@opsmith.op("driving::run_dynamic_scatter_sum")
def run_dynamic_scatter_sum(
    features: Float32[Tensor, "P C"], starts: Int32[Tensor, "V"], order: Int32[Tensor, "P"]
) -> Float32[Tensor, "V C"]:
    """Add the points of each voxel."""
    out = features.new_zeros(len(starts), features.shape[1])
    return out.index_add(0, voxels(starts, order), features)


@opsmith.op("driving::run_dynamic_scatter_mean")
def run_dynamic_scatter_mean(
    features: Float32[Tensor, "P C"], starts: Int32[Tensor, "V"], order: Int32[Tensor, "P"]
) -> Float32[Tensor, "V C"]:
    """Give the mean of the points of each voxel."""
    out = features.new_zeros(len(starts), features.shape[1])
    return out.index_reduce(0, voxels(starts, order), features, "mean", include_self=False)


@opsmith.op("driving::run_dynamic_scatter_max")
def run_dynamic_scatter_max(
    features: Float32[Tensor, "P C"], starts: Int32[Tensor, "V"], order: Int32[Tensor, "P"]
) -> tuple[Float32[Tensor, "V C"], UInt8[Tensor, "P (C+7)//8"]]:
    """Give the greatest of the points of each voxel, and a bit where a point is the first such."""
    voxel = voxels(starts, order)
    out = features.new_zeros(len(starts), features.shape[1])
    out = out.index_reduce(0, voxel, features, "amax", include_self=False)
    bits = torch.zeros(len(features), -(-features.shape[1] // 8) * 8, dtype=torch.bool)
    bits[:, : features.shape[1]] = features == out[voxel]
    weights = 2 ** torch.arange(8)
    return out, (bits.reshape(len(bits), -1, 8) * weights).sum(2).to(torch.uint8)


for operator, mode in (
    (run_dynamic_scatter_sum, 100),
    (run_dynamic_scatter_mean, 101),
    (run_dynamic_scatter_max, 102),
):
    results = "out0 out1" if mode == 102 else "out @nullptr"
    first = results.split()[0]
    register(
        operator,
        "dynamic_scatter/op_kernel/dynamic_scatter.cpp",
        tiling=f"  key = {mode};\n  zero(a.{first});{SCATTER_TILING}",
        arguments=f"features starts order {results}",
        **SCATTER,
    )

    @operator.register_cases(only=True)
    def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
        for random, starts, order, (points, _, channels) in scattered(seed):
            features = torch.rand(points, channels, generator=random)
            yield {"features": features, "starts": starts, "order": order}


@opsmith.op("driving::run_dynamic_scatter_grad_sum")
def run_dynamic_scatter_grad_sum(
    grad: Float32[Tensor, "V C"], starts: Int32[Tensor, "V"], order: Int32[Tensor, "P"]
) -> Float32[Tensor, "P C"]:
    """Give each point the gradient of its voxel's sum."""
    return grad[voxels(starts, order)]


@opsmith.op("driving::run_dynamic_scatter_grad_mean")
def run_dynamic_scatter_grad_mean(
    grad: Float32[Tensor, "V C"], starts: Int32[Tensor, "V"], order: Int32[Tensor, "P"]
) -> Float32[Tensor, "P C"]:
    """Give each point the gradient of its voxel's mean."""
    voxel = voxels(starts, order)
    return grad[voxel] / voxel.bincount()[voxel][:, None]


@opsmith.op("driving::run_dynamic_scatter_grad_max")
def run_dynamic_scatter_grad_max(
    grad: Float32[Tensor, "V C"],
    starts: Int32[Tensor, "V"],
    order: Int32[Tensor, "P"],
    mask: UInt8[Tensor, "P M"],
) -> Float32[Tensor, "P C"]:
    """Give each point the gradient of its voxel, where it is the greatest."""
    bits = mask[:, :, None] >> torch.arange(8) & 1
    bits = bits.reshape(len(mask), -1)[:, : grad.shape[1]]
    return grad[voxels(starts, order)] * bits


for operator, mode in (
    (run_dynamic_scatter_grad_sum, 100),
    (run_dynamic_scatter_grad_mean, 101),
    (run_dynamic_scatter_grad_max, 102),
):
    register(
        operator,
        "dynamic_scatter/op_kernel/dynamic_scatter_grad.cpp",
        fields="""uint32_t totalPointNum, totalVoxelNum, pointGradNum, voxelNumPerCore,
      eleNumPerCore, voxelNumLastCore, eleNumLastCore, alignedNum, featDim, featDimAligned;
  uint64_t maskNum;
  uint32_t maskDim, maskDimAligned, maxPointNum, blockLen, blockLenPad, blockLenMask, usedCoreNum;
  bool isFeatsAligned;""",
        tiling=f"""
  key = {mode};
  t.totalPointNum = a.P, t.totalVoxelNum = a.V, t.featDim = a.C, t.pointGradNum = a.P * a.C;
  t.voxelNumPerCore = divided_up(a.V, kCores);
  blocks = t.usedCoreNum = divided_up(a.V, t.voxelNumPerCore);
  t.voxelNumLastCore = a.V - t.voxelNumPerCore * (blocks - 1);
  t.eleNumPerCore = t.voxelNumPerCore * a.C, t.eleNumLastCore = t.voxelNumLastCore * a.C;
  t.alignedNum = 8, t.featDimAligned = rounded_up(a.C, 8), t.blockLen = t.featDimAligned / 8;
  t.isFeatsAligned = a.C % 8 == 0;
  if (!t.isFeatsAligned) t.blockLenPad = a.C * 4;
  t.maskDim = divided_up(a.C, 8), t.maskDimAligned = rounded_up(t.maskDim, 32);
  t.maskNum = t.maskDim * a.P, t.blockLenMask = t.maskDimAligned / 32;
  zero(a.out);
""",
        arguments=f"grad starts order {'mask' if mode == 102 else '@nullptr'} out",
    )

    @operator.register_cases(only=True)
    def _(dtype: torch.dtype, seed: int, mode: int = mode) -> Iterator[dict[str, Any]]:
        for random, starts, order, (points, count, channels) in scattered(seed):
            grad = torch.rand(count, channels, generator=random)
            case = {"grad": grad, "starts": starts, "order": order}
            if mode == 102:
                shape = (points, -(-channels // 8))
                case["mask"] = torch.randint(256, shape, generator=random, dtype=torch.uint8)
            yield case
