"""Kernels of DrivingSDK (BSD-3) that pool voxels and what is in boxes."""

from collections.abc import Iterator
from typing import Any

import torch
from driving import register
from jaxtyping import Float32, Int16, Int32
from torch import Tensor

import opsmith


def randoms(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@opsmith.op("driving::run_voxel_pooling_train")
def run_voxel_pooling_train(
    geom: Int32[Tensor, "B N 3"], feat: Float32[Tensor, "B N C"], X: int, Y: int, Z: int
) -> tuple[Float32[Tensor, "B {Y} {X} C"], Int32[Tensor, "B N 3"]]:
    """Add the points to their pillars, and say which pillar a point has, or -1 if it has none."""
    x, y, z = geom.long().unbind(2)
    inside = (x >= 0) & (x < X) & (y >= 0) & (y < Y) & (z >= 0) & (z < Z)
    batch = torch.arange(len(geom))[:, None].expand_as(x)
    at = torch.stack([batch, y, x], 2)
    out = feat.new_zeros(len(geom), Y, X, feat.shape[2])
    out = out.index_put((*at[inside].unbind(1),), feat[inside], accumulate=True)
    return out, at.where(inside[..., None], -1).int()


register(
    run_voxel_pooling_train,
    "voxel_pooling_train/op_kernel/voxel_pooling_train.cpp",
    struct="VoxelPoolingTilingData",
    fields="""uint32_t batchSize, numPoints, numChannels, cAligned, numVoxelX, numVoxelY, numVoxelZ,
      indicesAligned, average, taskLast, usedCoreNum;""",
    tiling="""
  t.batchSize = a.B, t.numPoints = a.N, t.numChannels = a.C;
  t.cAligned = rounded_up(a.C, 8), t.indicesAligned = 8;
  t.numVoxelX = a.X, t.numVoxelY = a.Y, t.numVoxelZ = a.Z;
  t.average = a.B * a.N / kCores, t.taskLast = a.B * a.N % kCores;
  blocks = t.usedCoreNum = t.average == 0 ? t.taskLast : kCores;
  zero(a.out0);
  std::fill_n(a.out1.data(), a.out1.numel(), -1);
""",
    arguments="geom feat out0 out1",
)


@opsmith.op("driving::run_voxel_pooling_train_grad")
def run_voxel_pooling_train_grad(
    grad: Float32[Tensor, "B H W C"], pos: Int32[Tensor, "B N 3"]
) -> Float32[Tensor, "B N C"]:
    """Give each point the gradient of its pillar, or 0 if it has none."""
    b, y, x = pos.long().clamp(min=0).unbind(2)
    return grad[b, y, x] * (pos[..., :1] >= 0)


register(
    run_voxel_pooling_train_grad,
    "voxel_pooling_train/op_kernel/voxel_pooling_train_grad.cpp",
    fields="""uint32_t batchSize, numPoints, numChannels, h, w, numChannelsAligned, indicesAligned,
      average, taskLast, usedCoreNum;""",
    tiling="""
  t.batchSize = a.B, t.numPoints = a.N, t.numChannels = a.C, t.h = a.H, t.w = a.W;
  t.numChannelsAligned = rounded_up(a.C, 8), t.indicesAligned = 8;
  t.average = a.B * a.N / kCores, t.taskLast = a.B * a.N % kCores;
  blocks = t.usedCoreNum = t.average == 0 ? t.taskLast : kCores;
  zero(a.out);
""",
    arguments="grad pos out",
)


@run_voxel_pooling_train.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = randoms(seed)
    for b, n, c in ((1, 8, 8), (2, 9, 5), (2, 90, 16)):
        geom = torch.randint(-1, 5, (b, n, 3), generator=random, dtype=torch.int32)
        feat = torch.rand(b, n, c, generator=random)
        yield {"geom": geom, "feat": feat, "X": 4, "Y": 5, "Z": 3}


@run_voxel_pooling_train_grad.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    for case in run_voxel_pooling_train.cases[0](dtype, seed):
        out, pos = run_voxel_pooling_train(**case)
        yield {"grad": torch.rand(out.shape, generator=randoms(seed)), "pos": pos}


def inside(boxes: Tensor, pts: Tensor, *, bottom: bool) -> Tensor:
    """Say which boxes (B, 7, M) points (B, N, 3) are in: (B, N, M)."""
    cx, cy, cz, dx, dy, dz, rz = boxes[:, None].unbind(2)
    cz = cz + dz / 2 if bottom else cz
    x, y, z = pts[..., None].unbind(2)
    cosine, sine = (-rz).cos(), (-rz).sin()
    local_x = (x - cx) * cosine - (y - cy) * sine
    local_y = (x - cx) * sine + (y - cy) * cosine
    return (local_x.abs() <= dx / 2) & (local_y.abs() <= dy / 2) & ((z - cz).abs() <= dz / 2)


@opsmith.op("driving::run_points_in_box")
def run_points_in_box(
    boxes: Float32[Tensor, "1 7 M"], pts: Float32[Tensor, "1 N 3"]
) -> Int32[Tensor, "1 N"]:
    """Give the first box that a point is in, or -1; the project's wrapper made `cz` its centre."""
    inner = inside(boxes, pts, bottom=False)
    return inner.int().argmax(2).where(inner.any(2), -1).int()


DTYPES = "#define DTYPE_BOXES float\n#define DTYPE_PTS float\n#define __CCE_KT_TEST__\n"
DTYPES += "#define DTYPE_BOXES_IDX_OF_POINTS int32_t"
register(
    run_points_in_box,
    "points_in_box/op_kernel/points_in_box.cpp",
    fields="""uint32_t core_used;
  uint64_t core_data;
  uint32_t copy_loop, copy_tail, last_copy_loop, last_copy_tail, batch, npoints;
  uint64_t box_number;
  uint32_t available_ub_size;""",
    tiling="""
  t.core_data = rounded_up(divided_up(a.N, kCores), 64);
  blocks = t.core_used = divided_up(a.N, t.core_data);
  const uint64_t last = a.N % t.core_data == 0 ? t.core_data : a.N % t.core_data;
  t.available_ub_size = rounded_up((kMemory - 20 * 1024) / 50 / 4, 32);
  t.copy_loop = t.core_data / t.available_ub_size;
  t.copy_tail = t.core_data % t.available_ub_size;
  t.last_copy_loop = last / t.available_ub_size;
  t.last_copy_tail = last % t.available_ub_size;
  t.batch = 1, t.npoints = a.N, t.box_number = a.M;
""",
    arguments="boxes pts out",
    before=DTYPES,
)


@opsmith.op("driving::run_points_in_box_all")
def run_points_in_box_all(
    boxes: Float32[Tensor, "B 7 M"], pts: Float32[Tensor, "B N 3"]
) -> Int32[Tensor, "B N M"]:
    """Say which boxes a point is in; `cz` is the bottom of a box."""
    return inside(boxes, pts, bottom=True).int()


register(
    run_points_in_box_all,
    "points_in_box_all/op_kernel/points_in_box_all.cpp",
    fields="""uint32_t usedCoreNum, coreData, copyLoop, copyTail, lastCopyLoop, lastCopyTail,
      npoints, boxNumber, availableUbSize, batchSize;""",
    tiling="""
  const uint64_t points = a.B * a.N;
  t.coreData = divided_up(points, kCores);
  blocks = t.usedCoreNum = divided_up(points, t.coreData);
  const uint32_t last = points % t.coreData == 0 ? t.coreData : points % t.coreData;
  const uint64_t side = (std::sqrt(248 * 248 + 4 * 36 * kMemory) - 248) / 2 / 36;
  t.availableUbSize = rounded_up(side - 32, 32);
  t.copyLoop = t.coreData / t.availableUbSize, t.copyTail = t.coreData % t.availableUbSize;
  t.lastCopyLoop = last / t.availableUbSize, t.lastCopyTail = last % t.availableUbSize;
  t.batchSize = a.B, t.npoints = a.N, t.boxNumber = a.M;
""",
    arguments="boxes pts out",
    before=DTYPES,
)


def boxed(seed: int, batch: int, boxes: int, points: int) -> dict[str, Any]:
    random = randoms(seed)
    sizes = torch.tensor([4.0, 4, 1, 3, 3, 2, 6])[:, None]
    drawn = torch.rand(batch, 7, boxes, generator=random) * sizes
    return {"boxes": drawn, "pts": torch.rand(batch, points, 3, generator=random) * sizes[:3, 0]}


@run_points_in_box.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    for boxes, points in ((8, 64), (1, 3), (13, 100), (200, 300)):
        yield boxed(seed, 1, boxes, points)


@run_points_in_box_all.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    for batch, boxes, points in ((1, 8, 64), (1, 3, 5), (2, 16, 100), (3, 70, 30), (1, 40, 2000)):
        yield boxed(seed, batch, boxes, points)


@opsmith.op("driving::run_voxel_to_point")
def run_voxel_to_point(voxels: Int32[Tensor, "N"], xyz: bool) -> Int32[Tensor, "3 N"]:
    """Take a voxel's number apart into its coordinates."""
    bits = 8 if xyz else 11
    z, rest = voxels & ((1 << bits) - 1), voxels >> bits
    return torch.stack([rest >> 11, rest & 2047, z])


register(
    run_voxel_to_point,
    "voxel_to_point/op_kernel/voxel_to_point.cpp",
    struct="PointToVoxelTilingData",
    fields="""int32_t gridX, gridY, gridZ;
  float voxelSizeX, voxelSizeY, voxelSizeZ, coorXMin, coorYMin, coorZMin;
  int32_t avgTasks, tailTasks, totalTasks, avgPts, tailPts, totalPts, usedBlkNum;""",
    tiling="""
  t.gridX = t.gridY = 2048, t.gridZ = 256;
  t.voxelSizeX = t.voxelSizeY = t.voxelSizeZ = t.coorXMin = t.coorYMin = t.coorZMin = -1;
  const int32_t most = (kMemory - 10 * 1024) / 33 / 64 * 64;
  t.totalPts = a.N, t.avgPts = std::min<int32_t>(most, rounded_up(a.N, 64));
  t.totalTasks = divided_up(a.N, t.avgPts);
  t.tailPts = a.N % t.avgPts == 0 ? t.avgPts : a.N % t.avgPts;
  blocks = t.usedBlkNum = std::min<int32_t>(kCores, t.totalTasks);
  t.avgTasks = t.totalTasks / t.usedBlkNum, t.tailTasks = t.totalTasks % t.usedBlkNum;
  key = !a.xyz;
""",
    arguments="voxels out",
)


@run_voxel_to_point.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    for count, xyz in ((64, True), (1, True), (7, False), (6136, True), (260000, False)):
        voxels = torch.randint(2**30, (count,), generator=randoms(seed), dtype=torch.int32)
        yield {"voxels": voxels, "xyz": xyz}


@opsmith.op("driving::run_roipoint_pool3d")
def run_roipoint_pool3d(
    points: Float32[Tensor, "B 3 N"],
    features: Float32[Tensor, "B C N"],
    boxes: Float32[Tensor, "B M 7"],
    S: int,
) -> tuple[Float32[Tensor, "B M 3+C {S}"], Int32[Tensor, "B M"]]:
    """Give the first points in each box, over again if there are fewer, and say if it has none."""
    x, y, z = (points[:, None, i] for i in range(3))
    cx, cy, cz, dx, dy, dz, rz = boxes[..., None].unbind(2)
    cosine, sine = (-rz).cos(), (-rz).sin()
    local_x = (x - cx) * cosine - (y - cy) * sine
    local_y = (x - cx) * sine + (y - cy) * cosine
    inner = (local_x.abs() < dx / 2) & (local_y.abs() < dy / 2) & (z >= cz) & (z - cz <= dz)
    out = points.new_zeros(*boxes.shape[:2], 3 + features.shape[1], S)
    for b, m in inner.any(2).nonzero().tolist():
        at = inner[b, m].nonzero()[:, 0]
        out[b, m] = torch.cat([points[b], features[b]])[:, at[torch.arange(S) % len(at)]]
    return out, (~inner.any(2)).int()


register(
    run_roipoint_pool3d,
    "roipoint_pool3d/op_kernel/roipoint_pool3d_forward.cpp",
    fields="""uint32_t numSampledPoints, batchSize, pointNum, featureLen, boxesNum, eachCoreBoxes,
      ubSize;""",
    tiling="""
  t.numSampledPoints = a.S, t.batchSize = a.B, t.pointNum = a.N, t.featureLen = a.C;
  t.boxesNum = a.M, t.ubSize = kMemory;
  t.eachCoreBoxes = rounded_up(divided_up(a.B * a.M, kCores), 8);
  blocks = divided_up(a.B * a.M, t.eachCoreBoxes);
  key = 1;
""",
    arguments="points features boxes out0 out1",
    before="#define DTYPE_BOXES3D float\n#define DTYPE_POOLED_EMPTY_FLAG int32_t\n"
    "#define __CCE_KT_TEST__",
)


@run_roipoint_pool3d.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    for batch, boxes, points, channels, sampled in (
        (1, 8, 64, 5, 8), (1, 3, 10, 1, 4), (2, 5, 100, 2, 20), (3, 130, 40, 3, 10),
    ):  # fmt: skip
        case = boxed(seed, batch, boxes, points)
        features = torch.rand(batch, channels, points, generator=randoms(seed))
        yield {"points": case["pts"].mT.contiguous(), "features": features,
               "boxes": case["boxes"].mT.contiguous(), "S": sampled}  # fmt: skip


@opsmith.op("driving::run_roiaware_pool3d")
def run_roiaware_pool3d(
    rois: Float32[Tensor, "M 7"],
    pts: Float32[Tensor, "N 3"],
    features: Float32[Tensor, "N C"],
    P: int,
    X: int,
    Y: int,
    Z: int,
    average: bool,
) -> tuple[
    Int32[Tensor, "M {X} {Y} {Z} C"],
    Int32[Tensor, "M {X} {Y} {Z} {P}"],
    Float32[Tensor, "M {X} {Y} {Z} C"],
]:
    """Pool the first points of each voxel of a box; give also which these were, and the largest."""
    cx, cy, cz, dx, dy, dz, rz = rois[..., None].unbind(1)
    x, y, z = pts.T[:, None]
    cosine, sine = (-rz).cos(), (-rz).sin()
    local_x = (x - cx) * cosine - (y - cy) * sine
    local_y = (x - cx) * sine + (y - cy) * cosine
    inner = (local_x.abs() < dx / 2) & (local_y.abs() < dy / 2)
    inner &= (z - cz - dz / 2).abs() <= dz / 2
    at_x = ((local_x / dx + 0.5) * X).long().clamp(0, X - 1)
    at_y = ((local_y / dy + 0.5) * Y).long().clamp(0, Y - 1)
    at_z = ((z - cz) / dz * Z).long().clamp(0, Z - 1)
    voxel = ((at_x * Y + at_y) * Z + at_z).where(inner, -1)
    shape = (len(rois), X * Y * Z)
    most = torch.full((*shape, features.shape[1]), 0 if average else -1, dtype=torch.int32)
    listed = torch.zeros(*shape, P, dtype=torch.int32)
    pooled = features.new_zeros(*shape, features.shape[1])
    for m, v in {(m, int(voxel[m, n])) for m, n in inner.nonzero().tolist()}:
        points = (voxel[m] == v).nonzero()[: P - 1, 0]
        listed[m, v, 0], listed[m, v, 1 : len(points) + 1] = len(points), points
        largest = features[points].max(0)
        if average:
            pooled[m, v] = features[points].mean(0)
        else:
            most[m, v], pooled[m, v] = points[largest.indices].int(), largest.values
    sizes = (len(rois), X, Y, Z, -1)
    return most.reshape(sizes), listed.reshape(sizes), pooled.reshape(sizes)


register(
    run_roiaware_pool3d,
    "roiaware_pool3d/op_kernel/roiaware_pool3d.cpp",
    struct="RoiawarePool3dTilingData",
    fields="""uint32_t coreBoxNums, coreBoxTail, boxNum, ptsNum, channelNum, maxPtsPerVoxel, outx,
      outy, outz, coreNum, mode;""",
    tiling="""
  zero(a.out0), zero(a.out1), zero(a.out2);
  t.coreNum = kCores, t.coreBoxNums = a.M / kCores, t.coreBoxTail = a.M % kCores;
  t.boxNum = a.M, t.ptsNum = a.N, t.channelNum = a.C, t.maxPtsPerVoxel = a.P, t.mode = a.average;
  t.outx = a.X, t.outy = a.Y, t.outz = a.Z;
""",
    arguments="rois pts features out0 out1 out2",
    workspace="memory.room(64)",
    before="".join(
        f"#define DTYPE_{name} {dtype}\n"
        for name, dtype in (
            ("ROIS", "float"), ("PTS", "float"), ("PTS_FEATURE", "float"), ("ARGMAX", "int32_t"),
            ("PTS_IDX_OF_VOXELS", "int32_t"), ("POOLED_FEATURES", "float"),
        )
    ),
)  # fmt: skip


@run_roiaware_pool3d.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    for boxes, points, channels, most, average in (
        (8, 64, 8, 8, False), (3, 40, 16, 8, True), (3, 20, 5, 4, False), (90, 30, 8, 8, True),
    ):  # fmt: skip
        case = boxed(seed, 1, boxes, points)
        features = torch.rand(points, channels, generator=randoms(seed))
        yield {"rois": case["boxes"][0].T.contiguous(), "pts": case["pts"][0],
               "features": features, "P": most, "X": 2, "Y": 3, "Z": 2,
               "average": average}  # fmt: skip


@opsmith.op("driving::run_nms3d_on_sight")
def run_nms3d_on_sight(boxes: Float32[Tensor, "7 N"], threshold: float) -> Int16[Tensor, "N N"]:
    """Say which boxes stay beside each: no shadow of it, or out of its way."""
    x, y, heading = boxes[0], boxes[1], boxes[6]
    front = x > y.abs() * (1.73205 / 3)
    near = (x[:, None] - x) ** 2 + (y[:, None] - y) ** 2 < 25
    near &= (x[:, None] * x + y[:, None] * y > 0) & ~front[:, None] & ~front
    near &= (heading[:, None] - heading).abs() < 0.523598
    squares = x * x + y * y
    up = x[:, None] * y - y[:, None] * x
    distance = -(up * up) / (torch.maximum(squares[:, None], squares) + 0.0001)
    stays = distance.where(near, -100) <= threshold
    return (stays | torch.eye(len(x), dtype=torch.bool)).short()


register(
    run_nms3d_on_sight,
    "nms3d_on_sight/op_kernel/nms3d_on_sight.cpp",
    struct="Nms3dOnSightTilingData",
    fields="uint32_t usedCoreNum, boxNum, loopTime, assignBox, alignedN;\n  float threshold;",
    tiling="""
  t.boxNum = a.N, t.alignedN = rounded_up(a.N, 16), t.assignBox = rounded_up(t.alignedN, 64);
  blocks = t.usedCoreNum = std::min<uint64_t>(a.N, kCores);
  t.loopTime = divided_up(a.N, t.usedCoreNum), t.threshold = a.threshold;
  key = 1;
  const auto rows = ctx.scratch<int16_t>(a.N * t.alignedN);
  memory.results.push_back([&a, &t, rows] {
    for (int64_t i = 0; i < a.N; ++i)
      std::copy_n(rows.data() + i * t.alignedN, a.N, a.out.data() + i * a.N);
  });
""",
    arguments="boxes",
    workspace="reinterpret_cast<GM_ADDR>(rows.data()), nullptr",
)


@run_nms3d_on_sight.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    for count in (64, 16, 50, 200):
        boxes = torch.rand(7, count, generator=randoms(seed)) * 12 - 9
        yield {"boxes": boxes, "threshold": -1.0}
