"""Kernels of DrivingSDK (BSD-3) that average, find neighbours and convolve what is sparse."""

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


@opsmith.op("driving::run_scatter_mean")
def run_scatter_mean(
    src: Float32[Tensor, "H N C"], index: Annotated[Int32[Tensor, "H N"], Index("S")], S: int
) -> tuple[Float32[Tensor, "H {S} C"], Float32[Tensor, "H {S}"]]:
    """Give the sums, and how many went into each; the project divides afterwards."""
    at = index.long()
    count = src.new_zeros(len(src), S).scatter_add(1, at, torch.ones_like(at, dtype=src.dtype))
    out = src.new_zeros(len(src), S, src.shape[2])
    return out.scatter_add(1, at[..., None].expand_as(src), src), count


SPLIT = """
  const auto split = [](uint64_t most, uint64_t lines, uint64_t& tasks, uint64_t& each,
                        uint64_t& last) {
    tasks = lines <= most ? 1 : divided_up(lines, most);
    each = std::min(lines, most);
    last = lines - each * (tasks - 1);
  };
"""
register(
    run_scatter_mean,
    "scatter_mean/op_kernel/scatter_mean.cpp",
    fields="""uint64_t usedCoreNum, outNum, srcNum, indicesNum, bigCoreNum, tail, head,
      bacthSmallCore, bacthBigCore, taskNum, taskEachLine, taskLastLine, outLineEachBacth,
      coreEachHead, taskNumLast, taskEachLineLast, taskLastLineLast, indicesLoop, indicesLastNum,
      ubIndicesNum, body, outDimSize, dimSize, ubTailNum;
  bool isOneDeal;
  uint64_t headNumSmallLast, headNumBigLast, headNumEachTask;""",
    tiling=f"""{SPLIT}
  zero(a.out0), zero(a.out1);
  const auto sums = memory.of(a.out0);
  const uint64_t memory_left = kMemory - 8 * 1024;
  t.outNum = a.out0.numel(), t.srcNum = a.src.numel(), t.indicesNum = a.index.numel();
  t.bacthSmallCore = t.bacthBigCore = 1, t.bigCoreNum = t.usedCoreNum = kCores;
  if (a.C > 1) {{
    key = 1, t.tail = a.C, t.body = 1, t.dimSize = a.N, t.outDimSize = a.S;
    const uint64_t lines = a.H * a.N;
    if (lines <= 8) {{
      t.usedCoreNum = t.bigCoreNum = 1, t.bacthBigCore = lines;
    }} else {{
      t.bacthBigCore = std::max<uint64_t>(divided_up(lines, kCores), 4);
      t.bacthSmallCore = t.bacthBigCore - 1;
      t.usedCoreNum = divided_up(lines, t.bacthBigCore);
      t.bigCoreNum = lines - t.bacthSmallCore * t.usedCoreNum;
    }}
    split(16000, t.bacthBigCore, t.taskNum, t.taskEachLine, t.taskLastLine);
    split(16000, t.bacthSmallCore, t.taskNumLast, t.taskEachLineLast, t.taskLastLineLast);
    t.ubIndicesNum = memory_left - std::min<uint64_t>(a.C, 2048) * 4;
    t.ubIndicesNum = std::min(t.ubIndicesNum / 32 * 32 / 4, t.bacthBigCore);
    t.ubTailNum = (memory_left - t.ubIndicesNum * 4) / 32 * 8;
    t.ubTailNum = std::min(t.ubTailNum, rounded_up(a.C, 8));
  }} else {{
    t.head = a.H, t.coreEachHead = 1;
    if (a.H > int64_t(kCores)) {{
      key = 3;
      uint64_t heads = memory_left / 32 * 8 / (a.N + a.S) / 2;
      t.bacthSmallCore = a.H / kCores, t.bacthBigCore = t.bacthSmallCore + 1;
      t.bigCoreNum = a.H - t.bacthSmallCore * kCores;
      if (heads == 0) {{
        t.ubIndicesNum = std::min<uint64_t>(2048, a.N);
        const uint64_t room = (memory_left - t.ubIndicesNum * 8) / 2 / 32 * 8;
        split(room, a.S, t.taskNum, t.taskEachLine, t.taskLastLine);
        split(room, a.S, t.taskNumLast, t.taskEachLineLast, t.taskLastLineLast);
      }} else {{
        t.headNumEachTask = heads = std::min(heads, t.bacthBigCore);
        t.ubIndicesNum = heads * a.N;
        t.taskNum = divided_up(t.bacthBigCore, heads);
        t.headNumBigLast = t.bacthBigCore - (t.taskNum - 1) * heads;
        t.taskNumLast = divided_up(t.bacthSmallCore, heads);
        t.headNumSmallLast = t.bacthSmallCore - (t.taskNumLast - 1) * heads;
        t.taskEachLine = t.taskEachLineLast = heads * a.S;
        t.taskLastLine = t.headNumBigLast * a.S, t.taskLastLineLast = t.headNumSmallLast * a.S;
      }}
    }} else {{
      key = 2;
      t.ubIndicesNum = std::min<uint64_t>(2048, a.N);
      const uint64_t room = (memory_left - t.ubIndicesNum * 8) / 2 / 32 * 8;
      t.coreEachHead = std::min<uint64_t>(kCores / a.H, a.S);
      t.outLineEachBacth = divided_up(a.S, t.coreEachHead);
      t.coreEachHead = divided_up(a.S, t.outLineEachBacth);
      t.usedCoreNum = a.H * t.coreEachHead;
      const uint64_t last = a.S - t.outLineEachBacth * (t.coreEachHead - 1);
      split(room, t.outLineEachBacth, t.taskNum, t.taskEachLine, t.taskLastLine);
      split(room, last, t.taskNumLast, t.taskEachLineLast, t.taskLastLineLast);
    }}
    t.indicesLoop = a.N / t.ubIndicesNum, t.indicesLastNum = a.N % t.ubIndicesNum;
  }}
  blocks = t.usedCoreNum;
""",
    arguments="src index",
    workspace="sums, sums, memory.of(a.out1), nullptr",
    before="#define __CCE_KT_TEST__\n"
    "#define DTYPE_SRC float\n#define DTYPE_INDICES int32_t\n#define DTYPE_VAR float\n"
    "#define DTYPE_OUT float\n#define DTYPE_COUNT float",
)


@run_scatter_mean.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = randoms(seed)
    for heads, count, channels, outs in (
        (1, 8, 8, 8), (2, 50, 5, 9), (1, 400, 16, 30),
        (2, 16, 1, 8), (3, 50, 1, 70), (50, 16, 1, 8), (100, 9, 1, 5),
    ):  # fmt: skip
        index = torch.randint(outs, (heads, count), generator=random, dtype=torch.int32)
        src = torch.rand(heads, count, channels, generator=random)
        yield {"src": src, "index": index, "S": outs}


@opsmith.op("driving::run_scatter_mean_div")
def run_scatter_mean_div(
    src: Float32[Tensor, "N C"], count: Float32[Tensor, "N"]
) -> Float32[Tensor, "N C"]:
    """Divide by how many there were, if any."""
    return src / count.clamp(min=1)[:, None]


register(
    run_scatter_mean_div,
    "scatter_mean/op_kernel/scatter_mean_div.cpp",
    fields="""uint64_t usedCoreNum, outNum, countNum, srcNum, bigCoreNum, tail, head,
      coreSmallLine, coreBigLine, taskNum, taskEachLine, taskLastLine, taskEachLineSmall,
      taskLastLineSmall, taskNumSmall, ubCountNum, ubTailNum;""",
    tiling=f"""{SPLIT}
  t.outNum = t.srcNum = a.src.numel(), t.countNum = a.N, t.tail = a.C;
  t.coreSmallLine = t.usedCoreNum = t.bigCoreNum = 1, t.coreBigLine = a.N;
  if (a.N > 8) {{
    t.coreBigLine = std::max<uint64_t>(divided_up(a.N, kCores), 4);
    t.coreSmallLine = t.coreBigLine - 1;
    t.usedCoreNum = divided_up(a.N, t.coreBigLine);
    t.bigCoreNum = a.N - t.coreSmallLine * t.usedCoreNum;
  }}
  split(16000, t.coreBigLine, t.taskNum, t.taskEachLine, t.taskLastLine);
  split(16000, t.coreSmallLine, t.taskNumSmall, t.taskEachLineSmall, t.taskLastLineSmall);
  const uint64_t memory_left = kMemory - 8 * 1024;
  t.ubCountNum = memory_left - std::min<uint64_t>(a.C, 2048) * 4;
  t.ubCountNum = std::min(t.ubCountNum / 32 * 32 / 4, t.coreBigLine);
  t.ubTailNum = (memory_left - t.ubCountNum * 4) / 32 * 32 / 4;
  t.ubTailNum = std::min(t.ubTailNum, rounded_up(a.C, 8));
  blocks = t.usedCoreNum;
  std::copy_n(a.src.data(), a.src.numel(), a.out.data());
  const auto quotients = memory.of(a.out);
""",
    arguments="",
    workspace="quotients, memory.of(a.count), quotients, nullptr",
    before="#define DTYPE_SRC float\n#define DTYPE_OUT float\n#define DTYPE_COUNT float\n"
    "#define __CCE_KT_TEST__",
)


@run_scatter_mean_div.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = randoms(seed)
    for count, channels in ((8, 8), (5, 3), (32, 16), (300, 20)):
        counts = torch.randint(4, (count,), generator=random).float()
        yield {"src": torch.rand(count, channels, generator=random), "count": counts}


@opsmith.op("driving::run_radius")
def run_radius(
    x: Float32[Tensor, "D N"],
    y: Float32[Tensor, "D M"],
    ptr_x: Int32[Tensor, "P"],
    ptr_y: Int32[Tensor, "P"],
    r: float,
    most: int,
) -> tuple[Int32[Tensor, "2 M*{most}"], Int32[Tensor, "8"]]:
    """Give the first neighbours in `x` of each point in `y` of the same batch, and their number."""
    pairs = []
    for i in range(len(ptr_x) - 1):
        xs, ys = (int(p[i]) for p in (ptr_x, ptr_y))
        near = ((y[:, ys : ptr_y[i + 1], None] - x[:, None, xs : ptr_x[i + 1]]) ** 2).sum(0) < r * r
        near &= near.cumsum(1) <= most
        pairs.append(near.nonzero().T + torch.tensor([[ys], [xs]]))
    found = torch.cat(pairs, 1).int()
    out = found.new_zeros(2, y.shape[1] * most)
    out[:, : found.shape[1]] = found
    return out, torch.full((8,), found.shape[1], dtype=torch.int32)


register(
    run_radius,
    "radius/op_kernel/radius.cpp",
    fields="""uint32_t coordinateDim, batchSize, numPointsX, numPointsY, maxNumNeighbors,
      usedCoreNum, headCoreNum, batchPerCore, batchPerCoreTail, bufferSizePtr, bufferSizePoints,
      numLocalPtr, numLocalPoints;
  float r;""",
    tiling="""
  t.coordinateDim = a.D, t.batchSize = a.P - 1, t.numPointsX = a.N, t.numPointsY = a.M;
  t.maxNumNeighbors = a.most, t.r = float(a.r) * float(a.r);
  t.batchPerCore = 1, t.batchPerCoreTail = 0, t.headCoreNum = t.usedCoreNum = t.batchSize;
  if (t.batchSize >= kCores) {
    t.usedCoreNum = kCores, t.batchPerCore = t.batchSize / kCores + 1;
    t.batchPerCoreTail = t.batchPerCore - 1;
    t.headCoreNum = t.batchSize - t.batchPerCoreTail * kCores;
  }
  blocks = t.usedCoreNum;
  t.bufferSizePtr = ((t.batchPerCore + 1) * 4 + 32) / 32 * 32, t.numLocalPtr = t.bufferSizePtr / 4;
  t.bufferSizePoints = 64 << 10, t.numLocalPoints = 2048;
  zero(a.out0), zero(a.out1);
""",
    arguments="x y ptr_x ptr_y",
    workspace="memory.room(2 * a.M * a.most * 4), memory.of(a.out0), memory.of(a.out1),\n"
    "      memory.room((kCores + 1) * 32)",
)


@run_radius.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = randoms(seed)
    for batches, points, dims, most in ((7, 8, 3, 4), (3, 5, 2, 9), (9, 100, 3, 20), (50, 9, 3, 3)):
        counts = torch.randint(1, points + 1, (2, batches), generator=random)
        ptr_x, ptr_y = torch.nn.functional.pad(counts.cumsum(1), (1, 0)).int()
        x, y = (torch.rand(dims, int(count), generator=random) for count in counts.sum(1))
        yield {"x": x, "y": y, "ptr_x": ptr_x, "ptr_y": ptr_y, "r": 0.5, "most": most}


@opsmith.op("driving::run_sparse_conv3d")
def run_sparse_conv3d(
    indices: Int32[Tensor, "N 4"],
    K: int,
    D: int,
    H: int,
    W: int,
    stride: int,
    padding: int,
) -> tuple[Int32[Tensor, "N*{K}*{K}*{K}"], Int32[Tensor, "N*{K}*{K}*{K} 4"]]:
    """Say which outputs a voxel goes into, and where these are; the project drops those of -1."""
    steps = torch.arange(K)
    kernel = torch.stack(torch.meshgrid(steps, steps, steps, indexing="ij"), -1).reshape(-1, 3)
    batch, place = indices[:, :1].long(), indices[:, None, 1:].long() + padding - kernel
    at = place // stride
    reached = (place >= 0) & (place % stride == 0) & (at < torch.tensor([D, H, W]))
    used = reached.all(2)
    number = ((batch * D + at[..., 0]) * H + at[..., 1]) * W + at[..., 2]
    pair = torch.cat([batch[:, None].expand(-1, K**3, 1), at], 2) * used[..., None]
    return number.where(used, -1).int().reshape(-1), pair.int().reshape(-1, 4)


register(
    run_sparse_conv3d,
    "sparse_conv3d/op_kernel/sparse_conv3d.cpp",
    struct="SparseConv3dTilingData",
    fields="""uint32_t usedCoreNum, coreTask, lastCoreTask, moveLen, repeatTimes, moveTail,
      lastRepeatTimes, lastMoveTail, kernelD, kernelH, kernelW, kernelSize, outfeatureB,
      outputDepth, outputHeight, outputWidth, strideDepth, strideHeight, strideWidth, paddingDepth,
      paddingHeight, paddingWidth;""",
    tiling="""
  t.kernelD = t.kernelH = t.kernelW = a.K, t.kernelSize = a.K * a.K * a.K;
  t.strideDepth = t.strideHeight = t.strideWidth = a.stride;
  t.paddingDepth = t.paddingHeight = t.paddingWidth = a.padding;
  t.outputDepth = a.D, t.outputHeight = a.H, t.outputWidth = a.W;
  t.coreTask = rounded_up(divided_up(a.N, kCores), 32);
  blocks = t.usedCoreNum = divided_up(a.N, t.coreTask);
  t.lastCoreTask = a.N % t.coreTask == 0 ? t.coreTask : a.N % t.coreTask;
  t.moveLen = (kMemory - 8 * 1024) / 4 / (t.kernelSize * 5 + 4) / 32 * 32;
  t.moveLen = std::min(t.moveLen, t.coreTask);
  t.repeatTimes = divided_up(t.coreTask, t.moveLen);
  t.lastRepeatTimes = divided_up(t.lastCoreTask, t.moveLen);
  t.moveTail = t.coreTask % t.moveLen == 0 ? t.moveLen : t.coreTask % t.moveLen;
  t.lastMoveTail = t.lastCoreTask % t.moveLen == 0 ? t.moveLen : t.lastCoreTask % t.moveLen;
""",
    arguments="indices out0 out1",
    workspace="memory.room(64)",
    before="#define DTYPE_INDICES int32_t",
)


@run_sparse_conv3d.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    for count, kernel, stride, padding in (
        (8, 3, 2, 1),
        (33, 3, 1, 0),
        (5, 2, 2, 0),
        (5000, 3, 2, 1),
    ):
        sizes = torch.tensor([2, 9, 12, 11])
        drawn = torch.rand(count, 4, generator=randoms(seed)) * sizes
        d, h, w = ((sizes[1:] + 2 * padding - kernel) // stride + 1).tolist()
        yield {"indices": drawn.int(), "K": kernel, "D": d, "H": h, "W": w,
               "stride": stride, "padding": padding}  # fmt: skip


@opsmith.op("driving::run_subm_sparse_conv3d_with_key")
def run_subm_sparse_conv3d_with_key(
    offsets: Annotated[Int32[Tensor, "V"], Index("N")],
    valid: Int32[Tensor, "V"],
    features: Float32[Tensor, "N C"],
    K: int,
) -> Float32[Tensor, "N {K}*{K}*{K} C"]:
    """Put the features of each pair at its output and its place in the kernel."""
    out = features.new_zeros(len(features) * K**3, features.shape[1])
    out[valid.long()] = features[offsets.long()]
    return out.reshape(len(features), K**3, -1)


register(
    run_subm_sparse_conv3d_with_key,
    "subm_sparse_conv3d/op_kernel/subm_sparse_conv3d_with_key.cpp",
    fields="""uint64_t core_used, core_data, copy_loop, copy_tail, last_copy_loop, last_copy_tail,
      inchannel, outchannel, indices_number, kernel_size, available_ub_size, valid_number, K0, K1,
      K2;""",
    tiling="""
  zero(a.out);
  t.K0 = t.K1 = t.K2 = a.K, t.kernel_size = a.K * a.K * a.K;
  t.inchannel = t.outchannel = a.C, t.indices_number = a.N, t.valid_number = a.V;
  t.core_data = rounded_up(divided_up(a.V, kCores), 64);
  blocks = t.core_used = divided_up(a.V, t.core_data);
  const uint64_t last = a.V % t.core_data == 0 ? t.core_data : a.V % t.core_data;
  t.available_ub_size = rounded_up((kMemory - 20 * 1024 - a.C * 70) / 20, 32);
  t.copy_loop = t.core_data / t.available_ub_size;
  t.copy_tail = t.core_data % t.available_ub_size;
  t.last_copy_loop = last / t.available_ub_size;
  t.last_copy_tail = last % t.available_ub_size;
""",
    arguments="offsets valid features out",
    before="#define DTYPE_OUTIDX_OFFSET int32_t\n#define DTYPE_GRAD_OUT_FEATURES float",
)


@run_subm_sparse_conv3d_with_key.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = randoms(seed)
    for voxels, channels, used in ((9, 8, 64), (5, 3, 30), (90, 16, 700), (13200, 8, 356000)):
        yield {
            "offsets": torch.randint(voxels, (used,), generator=random, dtype=torch.int32),
            "valid": torch.randperm(voxels * 27, generator=random)[:used].int(),
            "features": torch.rand(voxels, channels, generator=random),
            "K": 3,
        }
