"""Kernels of DrivingSDK (BSD-3) that choose points, pool images, and sample along borders."""

from collections.abc import Iterator
from typing import Any

import torch
from driving import register
from jaxtyping import Float32, Int32
from torch import Tensor

import opsmith


def randoms(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@opsmith.op("driving::run_furthest_point_sampling_with_dist")
def run_furthest_point_sampling_with_dist(
    distances: Float32[Tensor, "B N N"], M: int
) -> tuple[Int32[Tensor, "B {M}"], Float32[Tensor, "B N"]]:
    """Give points, each the furthest from those before, and the distances from the nearest one.

    The kernel writes these over an argument.
    """
    b, n, _ = distances.shape
    nearest = distances.new_full((b, n), 1e10)
    chosen = torch.zeros(b, M, dtype=torch.int32)
    for i in range(1, M):
        last = chosen[:, i - 1].long()
        nearest = torch.minimum(nearest, distances[torch.arange(b), last])
        chosen[:, i] = nearest.argmax(1).int()
    return chosen, nearest


register(
    run_furthest_point_sampling_with_dist,
    "furthest_point_sampling_with_dist/op_kernel/furthest_point_sampling_with_dist.cpp",
    fields="""uint32_t used_core_num, points_num, task_num, task_num_tail, n, batch_dist_offset,
      batch_idx_offset, part_ub, move_n_times, n_tail, id_move_len, repeat_id_times, id_tail,
      work_size;""",
    tiling="""
  const auto tail = [](uint64_t all, uint64_t each) { return (all - 1) % each + 1; };
  t.points_num = a.M, t.n = a.N;
  t.task_num = divided_up(a.B, kCores), t.task_num_tail = tail(a.B, t.task_num);
  blocks = t.used_core_num = divided_up(a.B, t.task_num);
  t.batch_dist_offset = a.N * a.N, t.batch_idx_offset = a.M;
  t.part_ub = (kMemory - 20 * 1024) / 21 / 32 * 32;
  t.move_n_times = divided_up(a.N, t.part_ub), t.n_tail = tail(a.N, t.part_ub);
  t.id_move_len = 1024, t.repeat_id_times = divided_up(a.M, 1024), t.id_tail = tail(a.M, 1024);
  t.work_size = 2048;
  std::fill_n(a.out1.data(), a.out1.numel(), 1e10f);
""",
    arguments="distances out1 out0",
    workspace="memory.room(64)",
)


@run_furthest_point_sampling_with_dist.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = randoms(seed)
    for batch, count, chosen in ((1, 8, 3), (3, 40, 11), (2, 13, 5), (50, 16, 4)):
        points = torch.rand(batch, count, 3, generator=random) * 10
        distances = (points[:, :, None] - points[:, None]).square().sum(-1)
        yield {"distances": distances, "M": chosen}


@opsmith.op("driving::run_max_pool2d")
def run_max_pool2d(x: Float32[Tensor, "B H W C"]) -> Float32[Tensor, "B (H+1)//2 (W+1)//2 C"]:
    """Give the greatest of 3 x 3 pixels, at every second one."""
    pooled = torch.nn.functional.max_pool2d(x.permute(0, 3, 1, 2), 3, 2, 1)
    return pooled.permute(0, 2, 3, 1)


register(
    run_max_pool2d,
    "max_pool2d/op_kernel/max_pool2d.cpp",
    struct="MaxPool2dTilingData",
    fields="uint32_t batchSize, channel, inHeight, inWidth, outHeight, outWidth, coreNum;",
    tiling="""
  t.batchSize = a.B, t.channel = a.C, t.inHeight = a.H, t.inWidth = a.W;
  t.outHeight = (a.H + 1) / 2, t.outWidth = (a.W + 1) / 2, t.coreNum = kCores;
""",
    arguments="x out",
    before="#define DTYPE_X_TRANS float",
)


@run_max_pool2d.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = randoms(seed)
    for b, h, w, c in ((1, 6, 8, 64), (2, 9, 80, 128), (2, 90, 10, 64), (2, 90, 7, 64)):
        yield {"x": torch.randn(b, h, w, c, generator=random)}


@opsmith.op("driving::run_sparse_inverse_conv3d")
def run_sparse_inverse_conv3d(
    features: Float32[Tensor, "N C"], offsets: Int32[Tensor, "M"], places: Int32[Tensor, "P"]
) -> Float32[Tensor, "P C"]:
    """Give each place the features of the row whose interval it is in."""
    rows = torch.arange(len(features)).repeat_interleave(offsets.diff().long())
    return torch.zeros(len(places), features.shape[1]).index_put((places.long(),), features[rows])


register(
    run_sparse_inverse_conv3d,
    "sparse_inverse_conv3d/op_kernel/sparse_inverse_conv3d.cpp",
    struct="SparseInverseConv3dTilingData",
    fields="""uint32_t inChannel, kernelSize, moveLen, vectorCoreTask, vectorLastCoreTask,
      coreRepeatTimes, coreMoveLenTail, lastCoreRepeatTimes, lastCoreMoveLenTail;""",
    tiling="""
  const auto tail = [](uint64_t all, uint64_t each) { return (all - 1) % each + 1; };
  t.inChannel = a.C, t.kernelSize = 27;
  t.moveLen = (kMemory - 1024) / (4 + 4 * 27 + a.C * 4) / 2;
  t.vectorCoreTask = divided_up(a.N, kCores);
  blocks = divided_up(a.N, t.vectorCoreTask);
  t.vectorLastCoreTask = tail(a.N, t.vectorCoreTask);
  t.coreRepeatTimes = divided_up(t.vectorCoreTask, t.moveLen);
  t.coreMoveLenTail = tail(t.vectorCoreTask, t.moveLen);
  t.lastCoreRepeatTimes = divided_up(t.vectorLastCoreTask, t.moveLen);
  t.lastCoreMoveLenTail = tail(t.vectorLastCoreTask, t.moveLen);
  zero(a.out);
""",
    arguments="features offsets offsets places out",
    before="#define DTYPE_FEATURES float\n#define DTYPE_INDICES int32_t",
)


@run_sparse_inverse_conv3d.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = randoms(seed)
    for count, channels in ((1, 8), (30, 16), (90, 1024)):
        lengths = torch.randint(1, 9, (count,), generator=random)
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
        places = torch.randperm(int(offsets[-1]), generator=random)
        features = torch.randn(count, channels, generator=random)
        yield {"features": features, "offsets": offsets.int(), "places": places.int()}


def interpolated(image: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Give an image (H, W, C) between its pixels, and 0 further than 1 outside."""
    h, w, _ = image.shape
    outside = (y < -1) | (y > h) | (x < -1) | (x > w)
    y, x = y.clamp(0, h - 1), x.clamp(0, w - 1)
    y0, x0 = y.long(), x.long()
    y1, x1 = (y0 + 1).clamp(max=h - 1), (x0 + 1).clamp(max=w - 1)
    ly, lx = (y - y0)[..., None], (x - x0)[..., None]
    top = image[y0, x0] * (1 - lx) + image[y0, x1] * lx
    bottom = image[y1, x0] * (1 - lx) + image[y1, x1] * lx
    return torch.where(outside[..., None], 0, top * (1 - ly) + bottom * ly)


@opsmith.op("driving::run_border_align")
def run_border_align(
    feature: Float32[Tensor, "B H W C"], rois: Float32[Tensor, "B H*W 4"], pooled: int
) -> Float32[Tensor, "B H*W {pooled+1} C"]:
    """Interpolate a quarter of the channels along each border of each box."""
    b, _, _, c = feature.shape
    steps = torch.arange(pooled + 1)
    out = feature.new_zeros(b, rois.shape[1], pooled + 1, c)
    for n in range(b):
        x1, y1, x2, y2 = (edge[:, None] for edge in rois[n].unbind(1))
        dx, dy = (x2 - x1) / pooled * steps, (y2 - y1) / pooled * steps
        zero = torch.zeros_like(dx)
        borders = (
            (x1 + dx, y1 + zero),
            (x1 + zero, y1 + dy),
            (x2 - dx, y2 + zero),
            (x2 + zero, y2 - dy),
        )
        for i, (x, y) in enumerate(borders):
            part = slice(i * c // 4, (i + 1) * c // 4)
            out[n, :, :, part] = interpolated(feature[n, :, :, part], y, x)
    return out


register(
    run_border_align,
    "border_align/op_kernel/border_align.cpp",
    fields="""uint32_t roisNumPerLcore, roisNumPerScore, lcoreNum, scoreNum, inputBufferSize,
      roisBufferSize, roisNumPerLoop, batchSize, inputH, inputW, channels, moveInLength,
      moveOutLength, roisNumAligned, tailNum;
  int32_t pooledSize;""",
    tiling="""
  const uint32_t quarter = rounded_up(a.C / 4, 8), rois = a.B * a.H * a.W;
  t.roisNumPerLoop = 64, t.batchSize = a.B, t.inputH = a.H, t.inputW = a.W, t.channels = a.C;
  t.pooledSize = a.pooled, t.moveInLength = quarter, t.moveOutLength = a.C;
  t.inputBufferSize = quarter * 4, t.roisBufferSize = 64 * 16;
  t.roisNumAligned = rounded_up(rois, 8), t.tailNum = t.roisNumAligned - rois;
  t.roisNumPerScore = t.roisNumAligned / kCores / 8 * 8;
  t.roisNumPerLcore = t.roisNumPerScore + 8;
  t.scoreNum = (kCores * t.roisNumPerLcore - t.roisNumAligned) / 8;
  t.lcoreNum = kCores - t.scoreNum;
  if (t.roisNumPerScore == 0) blocks = t.lcoreNum;
""",
    arguments="feature rois out",
    before="#define DTYPE_INPUT float\n#define DTYPE_ROIS float\n#define DTYPE_OUTPUT float",
)


@run_border_align.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    """Boxes of the project's test, then some that begin above and left of the image."""
    random = randoms(seed)
    for shape, pooled, before in (
        ((1, 4, 4, 32), 3, 0.0),
        ((2, 5, 7, 64), 4, 0.0),
        ((1, 20, 17, 32), 2, 0.0),
        ((1, 6, 6, 32), 3, 0.5),
        ((1, 6, 6, 32), 3, 3.0),
    ):
        b, h, w, _ = shape
        boxes = torch.rand(b, h * w, 4, generator=random)
        boxes[..., :2] *= torch.tensor([w, h])
        boxes[..., 2:] += boxes[..., :2]
        feature = torch.rand(shape, generator=random)
        yield {"feature": feature, "rois": boxes - before, "pooled": pooled}


@opsmith.op("driving::run_hard_voxelize")
def run_hard_voxelize(
    points: Float32[Tensor, "N F"],
    voxels: Int32[Tensor, "U"],
    sorted_points: Int32[Tensor, "N"],
    order: Int32[Tensor, "U"],
    starts: Int32[Tensor, "U"],
    R: int,
    M: int,
) -> tuple[Float32[Tensor, "{R} {M} F"], Int32[Tensor, "{R}"], Int32[Tensor, "{R}"]]:
    """Give the first `M` points of each voxel, how many these are, and the voxel."""
    ends = torch.cat([starts[1:], torch.tensor([len(points)], dtype=starts.dtype)])
    grouped = points.new_zeros(R, M, points.shape[1])
    chosen = order[:R].long()
    counts = (ends - starts)[chosen].clamp(max=M)
    for i, (start, count) in enumerate(zip(starts[chosen].tolist(), counts.tolist(), strict=True)):
        grouped[i, :count] = points[sorted_points[start : start + count].long()]
    return grouped, counts.int(), voxels[chosen]


register(
    run_hard_voxelize,
    "hard_voxelize/op_kernel/hard_voxelize.cpp",
    fields="""int32_t usedDiffBlkNum, avgDiffTasks, tailDiffTasks, totalDiffTasks, avgPts, tailPts,
      totalPts, numPts, usedCopyBlkNum, avgCopyTasks, tailCopyTasks, totalCopyTasks, avgVoxs,
      tailVoxs, totalVoxs, featNum, freeNum, maxPoints;""",
    tiling="""
  const auto tail = [](uint64_t all, uint64_t each) { return (all - 1) % each + 1; };
  t.totalPts = a.U, t.numPts = a.N, t.freeNum = 1024, t.maxPoints = a.M, t.featNum = a.F;
  t.avgPts = std::min((kMemory - 10240) / 24 / 64 * 64, rounded_up(a.U, 64));
  t.tailPts = tail(a.U, t.avgPts), t.totalDiffTasks = divided_up(a.U, t.avgPts);
  t.usedDiffBlkNum = std::min<uint64_t>(kCores, t.totalDiffTasks);
  t.avgDiffTasks = t.totalDiffTasks / t.usedDiffBlkNum;
  t.tailDiffTasks = t.totalDiffTasks % t.usedDiffBlkNum;
  t.totalVoxs = a.R;
  t.avgVoxs = rounded_up(divided_up(a.R, std::min<uint64_t>(kCores, a.R)), 8);
  t.tailVoxs = tail(a.R, t.avgVoxs), t.totalCopyTasks = divided_up(a.R, t.avgVoxs);
  t.usedCopyBlkNum = std::min<uint64_t>(kCores, t.totalCopyTasks);
  t.avgCopyTasks = t.totalCopyTasks / t.usedCopyBlkNum;
  t.tailCopyTasks = t.totalCopyTasks % t.usedCopyBlkNum;
  blocks = std::max(t.usedDiffBlkNum, t.usedCopyBlkNum);
  key = a.F % 8 == 0;
  zero(a.out0);
""",
    arguments="points voxels sorted_points order starts out0 out1 out2",
    workspace="memory.room(a.U * 4)",
)


@run_hard_voxelize.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = randoms(seed)
    for count, features, cells, most in ((8, 8, 4, 3), (50, 4, 20, 5), (900, 5, 400, 4)):
        cell = torch.randint(cells, (count,), generator=random)
        sorted_cells, sorted_points = cell.sort(stable=True)
        voxels, lengths = sorted_cells.unique_consecutive(return_counts=True)
        yield {
            "points": torch.rand(count, features, generator=random),
            "voxels": voxels.int(),
            "sorted_points": sorted_points.int(),
            "order": torch.randperm(len(voxels), generator=random).int(),
            "starts": (lengths.cumsum(0) - lengths).int(),
            "R": max(1, len(voxels) - 3),
            "M": most,
        }


@opsmith.op("driving::run_furthest_point_sampling")
def run_furthest_point_sampling(
    points: Float32[Tensor, "B 3 N"], nearest: Float32[Tensor, "B N"], M: int
) -> Int32[Tensor, "B {M}"]:
    """Give points, each the furthest from those before; the first one is the first."""
    distances = (points[:, :, :, None] - points[:, :, None]).square().sum(1)
    return run_furthest_point_sampling_with_dist.reference(distances, M)[0]


register(
    run_furthest_point_sampling,
    "furthest_point_sampling/op_kernel/furthest_point_sampling.cpp",
    fields="""uint32_t N, batch, numPoints, pieces, formerNum, tailNum, workSize, idxTempSize,
      bigCoreBatch, smallCoreBatch, bigCoreNum, repeats;""",
    tiling="""
  const uint64_t all = divided_up(a.N * 4, 256);
  const auto work = [](uint64_t repeats) {
    const uint64_t once = repeats * 2, twice = rounded_up(divided_up(once, 64) * 2, 8);
    return (rounded_up(once, 8) + 2 * twice) * 4;
  };
  uint64_t most = 1;
  const auto room = [&](uint64_t each) {
    return 8 * 256 * each + work(std::min(each, all)) + rounded_up(divided_up(all, each) * 8, 32);
  };
  while (room(most + 1) <= kMemory - 3072) ++most;
  t.N = a.N, t.batch = a.B, t.numPoints = a.M;
  t.pieces = divided_up(all, most), t.repeats = std::min(most, all);
  t.workSize = work(t.repeats), t.idxTempSize = rounded_up(t.pieces * 8, 32);
  t.formerNum = t.repeats * 64, t.tailNum = a.N - t.formerNum * (t.pieces - 1);
  t.bigCoreBatch = divided_up(a.B, kCores), t.smallCoreBatch = a.B / kCores;
  t.bigCoreNum = t.bigCoreBatch == t.smallCoreBatch ? kCores : a.B - t.smallCoreBatch * kCores;
  blocks = std::min<uint64_t>(a.B, kCores);
""",
    arguments="points nearest out",
    workspace="memory.room(a.B * a.N * 4)",
)


@run_furthest_point_sampling.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = randoms(seed)
    for batch, count, chosen in ((1, 64, 5), (3, 200, 11), (2, 100, 7), (50, 64, 4), (1, 6400, 3)):
        points = torch.rand(batch, 3, count, generator=random) * 10
        yield {"points": points, "nearest": torch.full((batch, count), 1e10), "M": chosen}
