"""Kernels of DrivingSDK (BSD-3) that gather, scatter and pool points."""

from collections.abc import Iterator
from typing import Annotated, Any

import torch
from driving import register
from jaxtyping import Float32, Int32
from torch import Tensor

import opsmith
from opsmith import Index


def randoms(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@opsmith.op("driving::run_group_points")
def run_group_points(
    points: Float32[Tensor, "B N C"], indices: Annotated[Int32[Tensor, "B P S"], Index("N")]
) -> Float32[Tensor, "B P S C"]:
    """Give the points of each group; the project's wrapper transposes before and after."""
    batch = torch.arange(len(points))[:, None, None]
    return points[batch, indices.long()]


register(
    run_group_points,
    "group_points/op_kernel/group_points.cpp",
    fields="""uint32_t batchSize, cSize, nSize, npoints, nsample, cAligned, maxUbTaskNum,
      coreTaskNum, lastCoreTaskNum, mainCoreLoop, mainCoreTail, lastCoreLoop, lastCoreTail,
      lastCoreTailAligned, useCoreNum;""",
    tiling="""
  const uint64_t tasks = a.B * a.P * a.S;
  t.batchSize = a.B, t.cSize = a.C, t.nSize = a.N, t.npoints = a.P, t.nsample = a.S;
  t.coreTaskNum = rounded_up(divided_up(tasks, kCores), 64);
  blocks = t.useCoreNum = divided_up(tasks, t.coreTaskNum);
  t.lastCoreTaskNum = tasks % t.coreTaskNum == 0 ? t.coreTaskNum : tasks % t.coreTaskNum;
  t.cAligned = rounded_up(a.C, 8);
  t.maxUbTaskNum =
      std::min<uint64_t>(4095, (kMemory - 20 * 1024) / (t.cAligned * 4 + 4)) / 8 * 8;
  t.mainCoreLoop = t.coreTaskNum / t.maxUbTaskNum;
  t.mainCoreTail = t.coreTaskNum % t.maxUbTaskNum;
  t.lastCoreLoop = t.lastCoreTaskNum / t.maxUbTaskNum;
  t.lastCoreTail = t.lastCoreTaskNum % t.maxUbTaskNum;
  t.lastCoreTailAligned = rounded_up(t.lastCoreTail, 8);
""",
    arguments="points indices out",
    before="#define DTYPE_POINTS float\n#define DTYPE_OUT float\n#define DTYPE_INDICES int32_t",
)


@opsmith.op("driving::run_group_points_grad")
def run_group_points_grad(
    grad: Float32[Tensor, "B P S C"],
    indices: Annotated[Int32[Tensor, "B P S"], Index("N")],
    N: int,
) -> Float32[Tensor, "B {N} C"]:
    """Add the gradients of a point's uses."""
    b, c = grad.shape[0], grad.shape[-1]
    at = indices.long().reshape(b, -1, 1).expand(-1, -1, c)
    return grad.new_zeros(b, N, c).scatter_add(1, at, grad.reshape(b, -1, c))


register(
    run_group_points_grad,
    "group_points/op_kernel/group_points_grad.cpp",
    fields="""uint32_t b, c, n, npoints, nsample, cAligned, indicesAligned, average, taskLast,
      usedCoreNum;""",
    tiling="""
  const uint64_t tasks = a.B * a.P * a.S;
  t.b = a.B, t.c = a.C, t.n = a.N, t.npoints = a.P, t.nsample = a.S;
  t.cAligned = rounded_up(a.C, 8), t.indicesAligned = 8;
  t.average = tasks / kCores, t.taskLast = tasks % kCores;
  blocks = t.usedCoreNum = t.average == 0 ? t.taskLast : kCores;
  key = 1;
  zero(a.out);
""",
    arguments="grad indices out",
)


@run_group_points.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    for case in run_group_points_grad.cases[0](dtype, seed):
        b, n, c = len(case["indices"]), case["N"], case["grad"].shape[-1]
        points = torch.rand(b, n, c, generator=randoms(seed))
        yield {"points": points, "indices": case["indices"]}


@run_group_points_grad.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = randoms(seed)
    for b, n, c, p, s in ((2, 9, 8, 8, 8), (1, 6, 3, 4, 2), (2, 50, 16, 30, 5), (1, 40, 5, 900, 3)):
        indices = torch.randint(n, (b, p, s), generator=random, dtype=torch.int32)
        yield {"grad": torch.rand(b, p, s, c, generator=random), "indices": indices, "N": n}


POOL: dict[str, Any] = {
    "struct": "BEVPoolTilingData",
    "fields": """uint64_t usedCoreNum, avgTaskNum, tailTaskNum, totalTaskNum, stride0, stride1,
      stride2, stride3;""",
}
POOL_TILING = """
  blocks = t.usedCoreNum = std::min<uint64_t>(kCores, a.I);
  t.totalTaskNum = a.I, t.avgTaskNum = a.I / blocks, t.tailTaskNum = a.I % blocks;
  t.stride0 = a.C, t.stride1 = a.W * a.C;
  t.stride2 = a.H * t.stride1, t.stride3 = a.D * t.stride2;
  key = a.C % 8 == 0 ? 3 : 2;
"""


@opsmith.op("driving::run_bev_pool")
def run_bev_pool(
    feat: Float32[Tensor, "N C"],
    geom: Int32[Tensor, "N 4"],
    lengths: Int32[Tensor, "I"],
    starts: Int32[Tensor, "I"],
    B: int,
    D: int,
    H: int,
    W: int,
) -> Float32[Tensor, "{B} {D} {H} {W} C"]:
    """Add the points of an interval to its cell."""
    h, w, d, b = geom.long().unbind(1)
    out = feat.new_zeros(B, D, H, W, feat.shape[1])
    return out.index_put((b, d, h, w), feat, accumulate=True)


@opsmith.op("driving::run_bev_pool_grad")
def run_bev_pool_grad(
    grad: Float32[Tensor, "B D H W C"],
    geom: Int32[Tensor, "N 4"],
    lengths: Int32[Tensor, "I"],
    starts: Int32[Tensor, "I"],
) -> Float32[Tensor, "N C"]:
    """Give each point the gradient of its cell."""
    h, w, d, b = geom.long().unbind(1)
    return grad[b, d, h, w]


register(
    run_bev_pool,
    "bev_pool/op_kernel/bev_pool.cpp",
    tiling=f"{POOL_TILING}  zero(a.out);",
    arguments="feat geom lengths starts out",
    **POOL,
)
register(
    run_bev_pool_grad,
    "bev_pool/op_kernel/bev_pool_grad.cpp",
    tiling=f"{POOL_TILING}  zero(a.out);",
    arguments="grad geom lengths starts out",
    **POOL,
)


def pooled(seed: int) -> Iterator[tuple[torch.Generator, Tensor, Tensor, Tensor, tuple[int, ...]]]:
    """Give points sorted by cell, as the project's wrapper sorts them."""
    random = randoms(seed)
    for points, channels, sizes in (
        (1, 8, (1, 1, 1, 1)),
        (40, 16, (2, 1, 3, 4)),
        (30, 5, (1, 2, 4, 4)),
        (300, 8, (1, 2, 9, 7)),
    ):
        b, d, h, w = sizes
        cells = torch.randint(b * d * h * w, (points,), generator=random).sort().values
        _, lengths = cells.unique_consecutive(return_counts=True)
        place = [cells // w % h, cells % w, cells // (w * h) % d, cells // (w * h * d)]
        starts = lengths.cumsum(0) - lengths
        yield random, torch.stack(place, 1).int(), lengths.int(), starts.int(), (channels, *sizes)


@run_bev_pool.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    for random, geom, lengths, starts, (c, b, d, h, w) in pooled(seed):
        feat = torch.rand(len(geom), c, generator=random)
        shared = {"geom": geom, "lengths": lengths, "starts": starts}
        yield {"feat": feat, **shared, "B": b, "D": d, "H": h, "W": w}


@run_bev_pool_grad.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    for random, geom, lengths, starts, (c, b, d, h, w) in pooled(seed):
        grad = torch.rand(b, d, h, w, c, generator=random)
        yield {"grad": grad, "geom": geom, "lengths": lengths, "starts": starts}


@opsmith.op("driving::run_graph_softmax")
def run_graph_softmax(
    src: Float32[Tensor, "E 8"], index: Annotated[Int32[Tensor, "E"], Index("N")], N: int
) -> Float32[Tensor, "E 8"]:
    """Give the softmax over the edges of each node."""
    at = index.long()[:, None].expand_as(src)
    most = src.new_full((N, 8), -torch.inf).scatter_reduce(0, at, src, "amax")
    powers = (src - most.gather(0, at)).exp()
    return powers / (src.new_zeros(N, 8).scatter_add(0, at, powers).gather(0, at) + 1e-16)


register(
    run_graph_softmax,
    "graph_softmax/op_kernel/graph_softmax.cpp",
    fields="""uint32_t coreTask, coreWorkspace, totalTask, totalWorkspace, bigCoreCount,
      singleLoopTaskCount;""",
    tiling="""
  t.totalTask = a.E, t.coreTask = divided_up(a.E, kCores);
  t.coreWorkspace = divided_up(a.N, kCores), t.totalWorkspace = t.coreWorkspace * kCores;
  t.bigCoreCount = a.E % kCores == 0 ? kCores : a.E % kCores;
  t.singleLoopTaskCount = 2360;
  zero(a.out);
""",
    arguments="src index out",
    workspace="memory.room(2 * t.totalWorkspace * 8 * 4)",
)


@run_graph_softmax.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = randoms(seed)
    for edges, nodes in ((5, 3), (80, 80), (333, 20)):
        index = torch.randint(nodes, (edges,), generator=random, dtype=torch.int32)
        yield {"src": torch.randn(edges, 8, generator=random), "index": index, "N": nodes}


@opsmith.op("driving::run_bev_pool_v2")
def run_bev_pool_v2(
    depth: Float32[Tensor, "P"],
    feat: Float32[Tensor, "F C"],
    ranks_depth: Annotated[Int32[Tensor, "N"], Index("P")],
    ranks_feat: Annotated[Int32[Tensor, "N"], Index("F")],
    ranks_bev: Int32[Tensor, "N"],
    lengths: Int32[Tensor, "I"],
    starts: Int32[Tensor, "I"],
    B: int,
    D: int,
    H: int,
    W: int,
) -> Float32[Tensor, "{B} {D} {H} {W} C"]:
    """Add the points of an interval, each its feature times its depth, to its cell."""
    points = depth[ranks_depth.long()][:, None] * feat[ranks_feat.long()]
    out = feat.new_zeros(B * D * H * W, feat.shape[1])
    return out.index_add(0, ranks_bev.long(), points).reshape(B, D, H, W, feat.shape[1])


register(
    run_bev_pool_v2,
    "bev_pool_v2/op_kernel/bev_pool_v2.cpp",
    tiling=f"{POOL_TILING}  zero(a.out);",
    arguments="depth feat ranks_depth ranks_feat ranks_bev lengths starts out",
    **POOL,
)


@run_bev_pool_v2.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    for random, geom, lengths, starts, (c, b, d, h, w) in pooled(seed):
        count, (y, x, z, n) = len(geom), geom.unbind(1)
        yield {
            "depth": torch.rand(count, generator=random),
            "feat": torch.rand(7, c, generator=random),
            "ranks_depth": torch.randperm(count, generator=random).int(),
            "ranks_feat": torch.randint(7, (count,), generator=random, dtype=torch.int32),
            "ranks_bev": ((n * d + z) * h + y) * w + x,
            "lengths": lengths, "starts": starts, "B": b, "D": d, "H": h, "W": w,
        }  # fmt: skip


@opsmith.op("driving::run_bev_pool_v2_grad")
def run_bev_pool_v2_grad(
    grad: Float32[Tensor, "V C"],
    depth: Float32[Tensor, "P"],
    feat: Float32[Tensor, "F C"],
    ranks_depth: Annotated[Int32[Tensor, "N"], Index("P")],
    ranks_feat: Annotated[Int32[Tensor, "N"], Index("F")],
    ranks_bev: Annotated[Int32[Tensor, "N"], Index("V")],
    lengths: Int32[Tensor, "I"],
    starts: Int32[Tensor, "I"],
) -> tuple[Float32[Tensor, "P"], Float32[Tensor, "F C"]]:
    """Give the gradients of the depths and features, whose pixel an interval is."""
    at = grad[ranks_bev.long()]
    products = (at * feat[ranks_feat.long()]).sum(1)
    scaled = at * depth[ranks_depth.long()][:, None]
    return (
        torch.zeros_like(depth).index_add(0, ranks_depth.long(), products),
        torch.zeros_like(feat).index_add(0, ranks_feat.long(), scaled),
    )


register(
    run_bev_pool_v2_grad,
    "bev_pool_v2/op_kernel/bev_pool_v2_grad.cpp",
    tiling="""
  blocks = t.usedCoreNum = std::min<uint64_t>(kCores, a.I);
  t.totalTaskNum = a.I, t.avgTaskNum = a.I / blocks, t.tailTaskNum = a.I % blocks;
  t.stride0 = a.C;
  key = a.C % 8 == 0 ? 3 : 2;
  zero(a.out0), zero(a.out1);
""",
    arguments="grad depth feat ranks_depth ranks_feat ranks_bev lengths starts out0 out1",
    **POOL,
)


@run_bev_pool_v2_grad.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    """A pixel's points, of its depths, are an interval, as the project's wrapper sorts them."""
    random = randoms(seed)
    for channels, pixels, cells in ((8, 1, 1), (8, 5, 9), (5, 50, 9)):
        lengths = torch.randint(1, 4, (pixels,), generator=random)
        count = int(lengths.sum())
        yield {
            "grad": torch.rand(cells, channels, generator=random),
            "depth": torch.rand(count, generator=random),
            "feat": torch.rand(pixels, channels, generator=random),
            "ranks_depth": torch.randperm(count, generator=random).int(),
            "ranks_feat": torch.arange(pixels).repeat_interleave(lengths).int(),
            "ranks_bev": torch.randint(cells, (count,), generator=random, dtype=torch.int32),
            "lengths": lengths.int(),
            "starts": (lengths.cumsum(0) - lengths).int(),
        }


@opsmith.op("driving::run_scatter_mean_grad")
def run_scatter_mean_grad(
    grad: Float32[Tensor, "H O"],
    index: Annotated[Int32[Tensor, "H N"], Index("O")],
    count: Float32[Tensor, "H O"],
) -> Float32[Tensor, "H N"]:
    """Give each element the gradient of the mean that it went into, along the last dimension."""
    return (grad / count).gather(1, index.long())


MEAN_FIELDS = """uint64_t dimRange, dimRangeOut, paramsPro, gradInUbSize, indexUbSize,
      gradOutUbSize, indexSumUbSize, gradInNum, indexNum, gradOutNum, countNum, tail, taskNum,
      taskEachLine, taskLastLine, bigCoreNum, ubTailNum, bacthSmallCore, tilingMode, headTaskSmall,
      taskNumSmall, headLastTaskSmall, headTaskBig, taskNumBig, headLastTaskBig, taskEachHead;"""
register(
    run_scatter_mean_grad,
    "scatter_mean/op_kernel/scatter_mean_grad.cpp",
    fields=MEAN_FIELDS,
    tiling="""
  t.dimRange = a.N, t.dimRangeOut = a.O, t.paramsPro = t.tail = 1;
  t.gradInNum = t.indexNum = a.H * a.N, t.gradOutNum = t.countNum = a.H * a.O;
  const uint64_t memory_of_head = (a.O + a.N) * 8, available = kMemory - 4096;
  const uint64_t most = available / memory_of_head, big = divided_up(a.H, kCores), small = big - 1;
  t.bigCoreNum = a.H - small * kCores;
  const auto split = [most](uint64_t heads, uint64_t& task, uint64_t& tasks, uint64_t& last) {
    task = std::min(most, heads);
    tasks = task == 0 ? heads : divided_up(heads, task);
    last = heads - (tasks - 1) * task;
  };
  split(small, t.headTaskSmall, t.taskNumSmall, t.headLastTaskSmall);
  split(big, t.headTaskBig, t.taskNumBig, t.headLastTaskBig);
  t.gradOutUbSize = t.headTaskBig * a.O, t.indexUbSize = t.headTaskBig * a.N;
  blocks = t.taskNumSmall == 0 ? t.bigCoreNum : kCores;
  key = 1;
  zero(a.out);
""",
    arguments="grad index count out",
    before="#define DTYPE_INDEX int32_t\n#define DTYPE_COUNT float",
)


@run_scatter_mean_grad.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = randoms(seed)
    for heads, outs, count in ((1, 8, 16), (3, 5, 7), (100, 8, 8), (130, 2000, 3000)):
        index = torch.randint(outs, (heads, count), generator=random, dtype=torch.int32)
        ones = torch.ones(heads, count)
        counts = torch.zeros(heads, outs).scatter_add(1, index.long(), ones).clamp(min=1)
        grad = torch.rand(heads, outs, generator=random)
        yield {"grad": grad, "index": index, "count": counts}


@opsmith.op("driving::run_scatter_add_grad")
def run_scatter_add_grad(
    grad: Float32[Tensor, "H O"], index: Annotated[Int32[Tensor, "H N"], Index("O")]
) -> Float32[Tensor, "H N"]:
    """Give each element the gradient of the sum that it went into, along the last dimension."""
    return grad.gather(1, index.long())


register(
    run_scatter_add_grad,
    "scatter_add/op_kernel/scatter_add_grad_v1.cpp",
    struct="ScatterAddGradTilingData",
    fields="""uint64_t dimRange, dimRangeOut, paramsPro, gradInUbSize, indexUbSize, gradOutUbSize,
      indexSumUbSize, gradInNum, indexNum, gradOutNum, tail;
  uint32_t taskNum;
  uint64_t taskEachLine, taskLastLine;
  uint32_t bigCoreNum;
  uint64_t ubTailNum, bacthSmallCore;
  uint32_t tilingMode;
  uint64_t headTaskSmall;
  uint32_t taskNumSmall;
  uint64_t headLastTaskSmall, headTaskBig;
  uint32_t taskNumBig;
  uint64_t headLastTaskBig;
  uint32_t taskEachHead, dbTimes;""",
    tiling="""
  t.dimRange = a.N, t.dimRangeOut = a.O, t.paramsPro = t.tail = 1;
  t.gradInNum = t.indexNum = a.H * a.N, t.gradOutNum = a.H * a.O;
  const uint64_t row = rounded_up(a.N, 8) * 4, available = kMemory - 4096;
  const uint64_t most = std::min(available / (a.O * 4 + row * 2), 255 * 64 * 4 / row);
  const uint64_t big = divided_up(a.H, kCores), small = big - 1;
  t.bigCoreNum = a.H - small * kCores;
  const auto split = [most](uint64_t heads, uint64_t& task, uint32_t& tasks, uint64_t& last) {
    task = std::min(most, heads);
    tasks = task == 0 ? heads : divided_up(heads, task);
    last = heads - (tasks - uint64_t(1)) * task;
  };
  split(small, t.headTaskSmall, t.taskNumSmall, t.headLastTaskSmall);
  split(big, t.headTaskBig, t.taskNumBig, t.headLastTaskBig);
  t.gradOutUbSize = t.headTaskBig * a.O, t.indexUbSize = t.headTaskBig * row / 4;
  blocks = t.taskNumSmall == 0 ? t.bigCoreNum : kCores;
  key = 1;
  zero(a.out);
""",
    arguments="grad index out",
    before="#define DTYPE_INDEX int32_t",
)


@run_scatter_add_grad.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    for case in run_scatter_mean_grad.cases[0](dtype, seed):
        yield {"grad": case["grad"], "index": case["index"]}
