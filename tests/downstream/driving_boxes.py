"""Kernels of DrivingSDK (BSD-3) on boxes and the lines between points."""

from collections.abc import Iterator
from typing import Any

import torch
from driving import register
from jaxtyping import Float32, Int16, Int32, UInt8
from torch import Tensor

import opsmith


def randoms(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def covering(boxes: Tensor) -> Tensor:
    """Give how much of their union the grounds of two boxes share, which are not turned."""
    x, y, dx, dy = (boxes[:, i, None] for i in (0, 1, 3, 4))
    width = torch.minimum(x + dx / 2, (x + dx / 2).T) - torch.maximum(x - dx / 2, (x - dx / 2).T)
    height = torch.minimum(y + dy / 2, (y + dy / 2).T) - torch.maximum(y - dy / 2, (y - dy / 2).T)
    shared = width.clamp(min=0) * height.clamp(min=0)
    return shared / (dx * dy + (dx * dy).T - shared).clamp(min=1e-8)


@opsmith.op("driving::run_nms3d")
def run_nms3d(boxes: Float32[Tensor, "N 7"], threshold: float) -> Int16[Tensor, "N N"]:
    """Give 0 where a later box covers too much of a box's ground, and else 1."""
    return 1 - (covering(boxes) > threshold).triu(1).short()


@opsmith.op("driving::run_nms3d_normal")
def run_nms3d_normal(boxes: Float32[Tensor, "N 7"], threshold: float) -> Int16[Tensor, "N N"]:
    """Give 0 where a later box covers too much of a box's ground, and else 1."""
    return 1 - (covering(boxes) >= threshold).triu(1).short()


NMS_FIELDS = """uint32_t usedCoreNum, boxNum, loopTime, eachSum, tailSum, tailNum, maskNum;
  float overlapThresh;"""
NMS_TILING = """
  const uint32_t n = a.N;
  blocks = t.usedCoreNum = std::min<uint64_t>(divided_up(n, 16), kCores);
  t.boxNum = n, t.loopTime = (n - 1) / (blocks * 16) + 1, t.eachSum = t.loopTime * 16;
  t.tailSum = n - blocks * (t.loopTime - 1) * 16, t.tailNum = (t.tailSum - 1) % 16 + 1;
  t.maskNum = rounded_up(n, 16), t.overlapThresh = a.threshold;
  key = 1;
"""
for _operator in (run_nms3d, run_nms3d_normal):
    _name = _operator.signature.name.removeprefix("run_")
    register(
        _operator,
        f"{_name}/op_kernel/{_name}.cpp",
        fields=NMS_FIELDS,
        tiling=NMS_TILING,
        arguments="boxes out",
    )


def boxes_of(seed: int) -> Iterator[dict[str, Any]]:
    """Give boxes in whole tiles of 16: the columns of others are never written, nor read."""
    random = randoms(seed)
    for count in (16, 32, 208, 704):
        boxes = torch.rand(count, 7, generator=random) + 0.1
        boxes[:, :2] *= 3
        boxes[:, 6] = 0
        yield {"boxes": boxes, "threshold": 0.3}


@run_nms3d.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    yield from boxes_of(seed)


@run_nms3d_normal.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    yield from boxes_of(seed)


@opsmith.op("driving::run_draw_gaussian_to_heatmap")
def run_draw_gaussian_to_heatmap(
    mask: UInt8[Tensor, "N"],
    classes: Int32[Tensor, "N"],
    centers: Int32[Tensor, "2 N"],
    radii: Int32[Tensor, "N"],
    M: int,
    H: int,
    W: int,
) -> Float32[Tensor, "{M} {H} {W}"]:
    """Draw a bell around each center, into the heatmap of its class."""
    heat = torch.zeros(M, H, W, dtype=torch.get_default_dtype())
    ys, xs = torch.arange(H)[:, None], torch.arange(W)
    for i in range(len(mask)):
        x, y, radius = int(centers[0, i]), int(centers[1, i]), int(radii[i])
        squares = (xs - x).square() + (ys - y).square()
        bell = (-squares / (2 * ((2 * radius + 1) / 6) ** 2)).exp()
        near = ((xs - x).abs() <= radius) & ((ys - y).abs() <= radius)
        if mask[i]:
            number = int(classes[i]) - 1
            heat[number] = torch.maximum(heat[number], torch.where(near, bell, 0))
    return heat


register(
    run_draw_gaussian_to_heatmap,
    "draw_gaussian_to_heatmap/op_kernel/draw_gaussian_to_heatmap.cpp",
    fields="""uint32_t usedCoreNum, numClasses, coreTaskLen, taskObj, taskRepeatTimes,
      singleProcessCopyLen, featureMapSizeX, featureMapSizeY;""",
    tiling="""
  t.coreTaskLen = divided_up(a.M, kCores), t.numClasses = a.M, t.taskObj = a.N;
  blocks = divided_up(a.M, t.coreTaskLen);
  t.singleProcessCopyLen = rounded_up((kMemory - 8192 - 1024 * 16) / 4 / 5, 32);
  t.taskRepeatTimes = divided_up(a.N, t.singleProcessCopyLen);
  t.featureMapSizeX = a.W, t.featureMapSizeY = a.H;
  zero(a.out);
""",
    arguments="mask classes centers radii out",
)


@run_draw_gaussian_to_heatmap.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = randoms(seed)
    for count, classes, h, w in ((1, 1, 16, 16), (32, 3, 24, 40), (20, 10, 17, 13)):
        draw = [
            torch.randint(most, (count,), generator=random, dtype=torch.int32)
            for most in (classes, w, h, 4)
        ]
        yield {
            "mask": (torch.rand(count, generator=random) < 0.8).byte(),
            "classes": draw[0] + 1,
            "centers": torch.stack(draw[1:3]),
            "radii": draw[3] + 2,
            "M": classes, "H": h, "W": w,
        }  # fmt: skip


@opsmith.op("driving::run_cartesian_to_frenet1")
def run_cartesian_to_frenet1(
    distances: Float32[Tensor, "B N P 2"],
) -> tuple[Int32[Tensor, "B N"], Int32[Tensor, "B N"]]:
    """Give the nearest point of a line, and the one before."""
    nearest = distances.norm(dim=-1).argmin(-1).int()
    return nearest, (nearest - 1).clamp(min=0)


register(
    run_cartesian_to_frenet1,
    "cartesian_to_frenet1/op_kernel/cartesian_to_frenet1.cpp",
    fields="""uint32_t numPolyLinePoints, pointDim, taskSize, taskSizeElem, taskSizeAligned,
      copyInAlignNum, dstStride, rightPadding, tileLength, tileTaskNum, formerTileNum,
      formerTileRemainder, tailTileNum, tailTileRemainder, bigCoreCount, usedCoreNum, avgTaskNum,
      numTaskCurCore_b, taskLengthCurCore_b, taskLengthCurCore_s, tileTaskNum_b, tileTaskNum_s,
      taskResultSizeAligned_b, axisSizeAligned_b, taskResultSizeAligned_s, axisSizeAligned_s;""",
    tiling="""
  const uint32_t tasks = a.B * a.N, bytes = a.P * 8, whole = rounded_up(bytes, 32);
  const bool even = whole / 2 % 32 == 0;
  t.numPolyLinePoints = a.P, t.pointDim = 2, t.taskSize = bytes, t.taskSizeElem = a.P * 2;
  t.taskSizeAligned = even ? whole : whole + 32, t.copyInAlignNum = (bytes + 62) / 64 * 64;
  t.dstStride = !even, t.rightPadding = (whole - bytes) / 4;
  t.bigCoreCount = tasks % kCores;
  blocks = t.usedCoreNum = std::min<uint64_t>(tasks, kCores);
  t.avgTaskNum = tasks / kCores;
  t.tileTaskNum = uint32_t(kMemory * 0.3f) / t.taskSizeAligned;
  t.tileLength = t.tileTaskNum * t.taskSizeAligned;
  t.formerTileNum = (t.avgTaskNum + 1) / t.tileTaskNum;
  t.formerTileRemainder = (t.avgTaskNum + 1) % t.tileTaskNum;
  t.tailTileNum = t.avgTaskNum / t.tileTaskNum;
  t.tailTileRemainder = t.avgTaskNum % t.tileTaskNum;
  t.numTaskCurCore_b = t.avgTaskNum + 1;
  t.taskLengthCurCore_b = t.numTaskCurCore_b * t.taskSizeElem;
  t.taskLengthCurCore_s = t.avgTaskNum * t.taskSizeElem;
  t.tileTaskNum_b = std::min(t.tileTaskNum, t.numTaskCurCore_b);
  t.tileTaskNum_s = std::min(t.tileTaskNum, t.avgTaskNum);
  t.taskResultSizeAligned_b = rounded_up(t.tileTaskNum_b * 4, 32);
  t.taskResultSizeAligned_s = rounded_up(t.tileTaskNum_s * 4, 32);
  t.axisSizeAligned_b = t.tileTaskNum_b * (a.P * 4 + 31) / 32 * 32;
  t.axisSizeAligned_s = t.tileTaskNum_s * (a.P * 4 + 31) / 32 * 32;
  zero(a.out0), zero(a.out1);
""",
    arguments="distances out0 out1",
)


@run_cartesian_to_frenet1.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = randoms(seed)
    for b, n, p in ((1, 1, 8), (2, 9, 8), (1, 100, 32), (3, 70, 13)):
        yield {"distances": torch.randn(b, n, p, 2, generator=random)}


@opsmith.op("driving::run_boxes_overlap_bev")
def run_boxes_overlap_bev(
    first: Float32[Tensor, "N 5"], second: Float32[Tensor, "M 5"]
) -> Float32[Tensor, "N M"]:
    """Give the ground that boxes share, by two corners, none of them turned."""
    left = torch.maximum(first[:, None, :2], second[:, :2])
    right = torch.minimum(first[:, None, 2:4], second[:, 2:4])
    return (right - left).clamp(min=0).prod(-1)


register(
    run_boxes_overlap_bev,
    "boxes_overlap_bev/op_kernel/boxes_overlap_bev.cpp",
    fields="""uint32_t boxesANum, boxesBNum, boxesFormatSize, numLargeCores;
  uint64_t numTasksPerLargeCore;
  int32_t formatFlag, modeFlag;
  float margin;""",
    tiling="""
  const uint64_t tasks = a.N * a.M;
  t.boxesANum = a.N, t.boxesBNum = a.M, t.boxesFormatSize = 5;
  t.numLargeCores = tasks % kCores == 0 ? kCores : tasks % kCores;
  t.numTasksPerLargeCore = divided_up(tasks, kCores);
  key = 1;
  zero(a.out);
""",
    arguments="first second out",
    before="#define DTYPE_RES float",
)


@run_boxes_overlap_bev.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = randoms(seed)
    for n, m in ((1, 1), (8, 5), (40, 20)):
        boxes = torch.rand(n + m, 5, generator=random) * 2
        boxes[:, 2:4] += boxes[:, :2] + 0.1
        boxes[:, 4] = 0
        yield {"first": boxes[:n], "second": boxes[n:]}


@opsmith.op("driving::run_box_iou")
def run_box_iou(
    first: Float32[Tensor, "N 5"], second: Float32[Tensor, "M 5"]
) -> Float32[Tensor, "N M"]:
    """Give how much of their union boxes share, by center and size, none of them turned."""
    a, b = first[:, None], second
    left = torch.maximum(a[..., :2] - a[..., 2:4] / 2, b[:, :2] - b[:, 2:4] / 2)
    right = torch.minimum(a[..., :2] + a[..., 2:4] / 2, b[:, :2] + b[:, 2:4] / 2)
    shared = (right - left).clamp(min=0).prod(-1)
    return shared / (a[..., 2:4].prod(-1) + b[:, 2:4].prod(-1) - shared)


register(
    run_box_iou,
    "box_iou/op_kernel/box_iou.cpp",
    fields="""uint32_t boxesANum, boxesBNum, taskNum, taskNumPerCore, outerLoopCnt, innerLoopCnt,
      boxesDescDimNum;""",
    tiling="""
  t.boxesANum = a.N, t.boxesBNum = a.M, t.boxesDescDimNum = 5;
  t.taskNum = t.outerLoopCnt = std::max(a.N, a.M), t.innerLoopCnt = std::min(a.N, a.M);
  t.taskNumPerCore = divided_up(t.taskNum, kCores);
  key = 2;
  zero(a.out);
""",
    arguments="first second out",
    before="#define DTYPE_IOUS float\n#define DTYPE_BOXES_A float\n#define DTYPE_BOXES_B float",
)


@run_box_iou.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = randoms(seed)
    for n, m in ((1, 1), (8, 5), (40, 20), (6, 90)):
        boxes = torch.rand(n + m, 5, generator=random) * 2 + 0.1
        boxes[:, 4] = 0
        yield {"first": boxes[:n], "second": boxes[n:]}


@opsmith.op("driving::run_calc_poly_start_end_sl")
def run_calc_poly_start_end_sl(
    index: Int32[Tensor, "B N"],
    line: Float32[Tensor, "B P 2"],
    points: Float32[Tensor, "B N 2"],
    lengths: Float32[Tensor, "B P"],
) -> tuple[Float32[Tensor, "B N 2"], Float32[Tensor, "B N 2"], Float32[Tensor, "B N 2"]]:
    """Give a line's piece from each index on, and where along it and beside it points are."""
    batch = torch.arange(len(line))[:, None]
    start, end = line[batch, index.long()], line[batch, index.long() + 1]
    to, along = points - start, end - start
    norm = along.norm(dim=-1).clamp(1e-5, 1e10)
    s = (to * along).sum(-1) / norm + lengths[batch, index.long()]
    beside = -(to[..., 0] * along[..., 1] - to[..., 1] * along[..., 0]) / norm
    return start, end, torch.stack([s, beside], -1)


register(
    run_calc_poly_start_end_sl,
    "calc_poly_start_end_sl/op_kernel/calc_poly_start_end_sl.cpp",
    fields="uint32_t batchSize, npoints, numIdx, totalTaskNum, numTaskPerCore, numTaskRemained;",
    tiling="""
  t.batchSize = a.B, t.npoints = a.P, t.numIdx = a.N, t.totalTaskNum = a.B * a.N;
  t.numTaskPerCore = t.totalTaskNum / kCores, t.numTaskRemained = t.totalTaskNum % kCores;
""",
    arguments="index line points lengths out0 out1 out2",
)


@run_calc_poly_start_end_sl.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = randoms(seed)
    for b, n, p in ((1, 40, 8), (5, 8, 8), (2, 100, 13), (7, 33, 16)):
        line = torch.rand(b, p, 2, generator=random)
        steps = torch.nn.functional.pad(line.diff(dim=1).norm(dim=-1), (1, 0))
        yield {
            "index": torch.randint(p - 1, (b, n), generator=random, dtype=torch.int32),
            "line": line,
            "points": torch.rand(b, n, 2, generator=random),
            "lengths": steps.cumsum(1),
        }


@opsmith.op("driving::run_gaussian")
def run_gaussian(
    boxes: Float32[Tensor, "D N"], M: int
) -> tuple[
    Int32[Tensor, "2 N"],
    Int32[Tensor, "N"],
    UInt8[Tensor, "{M}"],
    Int32[Tensor, "{M}"],
    Float32[Tensor, "D+1 {M}"],
]:
    """Give the cells of boxes, the radii of their bells, and the boxes in units of cells."""
    count = boxes.shape[1]
    x, y = ((boxes[:2] + 50) / 0.2 / 4).unbind()
    center = torch.stack([x.trunc(), y.trunc()])
    dx, dy = (boxes[3:5] / 0.2 / 4).unbind()
    both, area, least = dx + dy, dx * dy, 0.1
    radii = [
        (b + (b * b - 4 * a * c).sqrt()) / 2
        for a, b, c in (
            (1, both, area * (1 - least) / (1 + least)),
            (4, 2 * both, area * (1 - least)),
            (4 * least, -2 * least * both, area * (least - 1)),
        )
    ]
    radius = torch.stack(radii).amin(0).int().clamp(min=2)
    kept = (dx > 0) & (dy > 0) & (center >= 0).all(0) & (center < 128).all(0)
    mask, index = torch.zeros(M, dtype=torch.uint8), torch.zeros(M, dtype=torch.int32)
    mask[:count] = kept.byte()
    index[:count] = torch.where(kept, center[1] * 128 + center[0], 0).int()
    rows = [
        x - center[0],
        y - center[1],
        boxes[2],
        *boxes[3:6].log(),
        boxes[6].sin(),
        boxes[6].cos(),
    ]
    out = boxes.new_zeros(len(boxes) + 1, M)
    out[:, :count] = torch.where(kept, torch.stack([*rows, *boxes[7:]]), 0)
    return center.int(), radius, mask, index, out


register(
    run_gaussian,
    "gaussian/op_kernel/gaussian.cpp",
    fields="""uint32_t usedCoreNum, numObjs, totalCoreTaskNum, coreProcessTaskNum,
      lastCoreProcessTaskNum, singleProcessTaskNum, featureMapSizeX, featureMapSizeY;
  float voxelXSize, voxelYSize, prcX, prcY;
  uint32_t featureMapStride, numMaxObjs, minRadius;
  float minOverLap;
  uint32_t dimSize;
  bool normBbox, flipAngle;""",
    tiling="""
  t.numObjs = t.totalCoreTaskNum = a.N, t.numMaxObjs = a.M, t.dimSize = a.D;
  t.coreProcessTaskNum = rounded_up(divided_up(a.N, kCores), 8);
  t.lastCoreProcessTaskNum = (a.N - 1) % t.coreProcessTaskNum + 1;
  blocks = t.usedCoreNum = divided_up(a.N, t.coreProcessTaskNum);
  t.singleProcessTaskNum = (kMemory - 8192) / 4 / (a.D * 2 + 32);
  t.featureMapSizeX = t.featureMapSizeY = 128;
  t.voxelXSize = t.voxelYSize = 0.2f, t.prcX = t.prcY = -50.0f;
  t.featureMapStride = 4, t.minRadius = 2, t.minOverLap = 0.1f, t.normBbox = true;
  zero(a.out0), zero(a.out1), zero(a.out2), zero(a.out3), zero(a.out4);
""",
    arguments="boxes out0 out1 out2 out3 out4",
)


@run_gaussian.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = randoms(seed)
    for count, rows in ((8, 9), (1, 7), (300, 9)):
        boxes = torch.rand(rows, count, generator=random) * 3 + 0.5
        boxes[:2] = torch.rand(2, count, generator=random) * 120 - 60
        yield {"boxes": boxes, "M": 500}
