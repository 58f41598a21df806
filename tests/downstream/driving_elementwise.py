"""Elementwise kernels of DrivingSDK (BSD-3)."""

from collections.abc import Iterator
from typing import Any

import torch
from driving import register
from jaxtyping import Float32
from torch import Tensor

import opsmith

#: How many elements: one, less than a block, those of several cores.
COUNTS = (1, 10, 64, 4099, 20000)


def drawn(seed: int, count: int, tensors: int) -> list[Tensor]:
    random = torch.Generator().manual_seed(seed)
    return [torch.rand(count, generator=random) * 4 - 2 for _ in range(tensors)]


@opsmith.op("driving::run_hypot")
def run_hypot(x: Float32[Tensor, "N"], y: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    """Give the hypotenuse."""
    return x.hypot(y)


@opsmith.op("driving::run_hypot_grad")
def run_hypot_grad(
    x: Float32[Tensor, "N"],
    y: Float32[Tensor, "N"],
    z: Float32[Tensor, "N"],
    grad: Float32[Tensor, "N"],
) -> tuple[Float32[Tensor, "N"], Float32[Tensor, "N"]]:
    """Give the gradient of the hypotenuse `z`."""
    return grad * x / z, grad * y / z


HYPOT: dict[str, Any] = {
    "struct": "HypotTilingData",
    "fields": """uint32_t formerNum, tailNum;
  uint64_t formerLength;
  uint32_t tailLength, formerTileLength, tailTileLength, formerTileNum, tailTileNum,
      formerRemainTileLength, tailRemainTileLength;""",
    "tiling": """
  const uint32_t length = rounded_up(a.N, 8);
  blocks = std::min<uint64_t>((length - 1) / 4096 + 1, kCores);
  t.formerNum = length / 8 % blocks;
  t.tailNum = blocks - t.formerNum;
  t.tailLength = length / 8 / blocks * 8;
  t.formerLength = t.tailLength + (t.formerNum ? 8 : 0);
  const auto split = [](uint32_t part, uint32_t& tile, uint32_t& count, uint32_t& last) {
    tile = rounded_up(part / (part * 3 * 4 * 2 / (kMemory - 16384) + 1), 8);
    count = tile == 0 ? 0 : divided_up(part, tile);
    last = count == 0 ? 0 : part - (count - 1) * tile;
  };
  split(t.formerLength, t.formerTileLength, t.formerTileNum, t.formerRemainTileLength);
  split(t.tailLength, t.tailTileLength, t.tailTileNum, t.tailRemainTileLength);
""",
}
register(
    run_hypot,
    "hypot/op_kernel/hypot.cpp",
    arguments="x y out",
    before="#define hypot hypot_of_tensors  // hypot is a function of C's library",
    kernel="hypot_of_tensors",
    **HYPOT,
)
register(
    run_hypot_grad,
    "hypot/op_kernel/hypot_grad.cpp",
    arguments="x y z grad out0 out1",
    **HYPOT,
)


@run_hypot.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    for count in COUNTS:
        x, y = drawn(seed, count, 2)
        yield {"x": x, "y": y}


@run_hypot_grad.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    for count in COUNTS:
        x, y, grad = drawn(seed, count, 3)
        yield {"x": x, "y": y, "z": x.hypot(y), "grad": grad}


@opsmith.op("driving::run_add_relu")
def run_add_relu(x: Float32[Tensor, "N"], y: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    """Give the sum where it is positive, which the kernel writes over `x`."""
    return (x + y).relu()


register(
    run_add_relu,
    "add_relu/op_kernel/add_relu.cpp",
    fields="""uint32_t core_used, core_data, copy_loop, copy_tail, last_copy_loop, last_copy_tail,
      box_number, available_ub_size;""",
    tiling="""
  t.core_data = rounded_up(divided_up(a.N, kCores), 64);
  blocks = t.core_used = divided_up(a.N, t.core_data);
  const uint32_t last = a.N % t.core_data == 0 ? t.core_data : a.N % t.core_data;
  t.available_ub_size = rounded_up((kMemory - 20 * 1024) / 12, 32);
  t.copy_loop = t.core_data / t.available_ub_size;
  t.copy_tail = t.core_data % t.available_ub_size;
  t.last_copy_loop = last / t.available_ub_size;
  t.last_copy_tail = last % t.available_ub_size;
  t.box_number = a.N;
  std::copy_n(a.x.data(), a.N, a.out.data());
""",
    arguments="out y out",
    before="#define DTYPE_X float\n#define DTYPE_Y float\n#define __CCE_KT_TEST__",
)


@run_add_relu.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    for count in (*COUNTS, 40 * 15000):
        x, y = drawn(seed, count, 2)
        yield {"x": x, "y": y}


@opsmith.op("driving::run_fused_bias_leaky_relu")
def run_fused_bias_leaky_relu(
    x: Float32[Tensor, "N"], bias: Float32[Tensor, "N"], slope: float, scale: float
) -> Float32[Tensor, "N"]:
    """Add the bias, which was broadcast before, and scale what is negative, and all."""
    return torch.nn.functional.leaky_relu(x + bias, slope) * scale


register(
    run_fused_bias_leaky_relu,
    "fused_bias_leaky_relu/op_kernel/fused_bias_leaky_relu_v2.cpp",
    fields="""float negative_slope, scale;
  uint32_t usedCoreNum, average, remainder, totalDataLength, singleBlock;""",
    tiling="""
  t.negative_slope = a.slope, t.scale = a.scale;
  t.totalDataLength = a.N, t.singleBlock = 8192;
  const uint32_t tasks = divided_up(a.N, t.singleBlock);
  t.average = tasks / kCores, t.remainder = tasks % kCores;
  blocks = t.usedCoreNum = t.average == 0 ? t.remainder : kCores;
""",
    arguments="x bias out",
    before="#define DTYPE_X float",
)


@run_fused_bias_leaky_relu.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    for count in (300, 8192, 5 * 8192):
        x, bias = drawn(seed, count, 2)
        yield {"x": x, "bias": bias, "slope": -0.1, "scale": 0.25}


@opsmith.op("driving::run_fake_tensor_quant")
def run_fake_tensor_quant(
    inputs: Float32[Tensor, "N"], amax: Float32[Tensor, "1"], num_bits: int, narrow: bool
) -> Float32[Tensor, "N"]:
    """Round to multiples of `amax / bound`."""
    bound = 2 ** (num_bits - 1) - 1
    scale = bound / amax
    return (inputs * scale).round().clamp(-(bound + int(not narrow)), bound) / scale


BOUNDS = """
  t.maxBound = (1 << (a.num_bits - 1)) - 1;
  t.minBound = -(t.maxBound + !a.narrow);
  key = 1;
"""
register(
    run_fake_tensor_quant,
    "fake_tensor_quant/op_kernel/fake_tensor_quant.cpp",
    fields="""uint32_t headCoreNum, normalCopyElemNum, eachHeadCoreElemNum, eachTailCoreElemNum,
      headCoreCopyNum, tailCoreCopyNum, headCoreLastCopyElemNum, tailCoreLastCopyElemNum;
  int32_t maxBound, minBound;""",
    tiling=f"""
  const uint32_t each = a.N / kCores + 1;
  t.headCoreNum = a.N % kCores;
  t.normalCopyElemNum = std::min<uint64_t>(each, (kMemory - 10240) / 20 / 8 * 8);
  t.eachHeadCoreElemNum = each, t.eachTailCoreElemNum = each - 1;
  t.headCoreCopyNum = divided_up(each, t.normalCopyElemNum);
  t.tailCoreCopyNum = divided_up(each - 1, t.normalCopyElemNum);
  t.headCoreLastCopyElemNum = each - (t.headCoreCopyNum - 1) * t.normalCopyElemNum;
  if (each != 1)
    t.tailCoreLastCopyElemNum = each - 1 - (t.tailCoreCopyNum - 1) * t.normalCopyElemNum;
{BOUNDS}""",
    arguments="inputs amax out",
)


@run_fake_tensor_quant.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    for count, narrow in ((1, True), (64, False), (10000, True), (400000, True)):
        (x,) = drawn(seed, count, 1)
        yield {"inputs": x, "amax": x.max().abs().reshape(1), "num_bits": 8, "narrow": narrow}


@opsmith.op("driving::run_fake_tensor_quant_with_axis")
def run_fake_tensor_quant_with_axis(
    inputs: Float32[Tensor, "A B C"],
    amax: Float32[Tensor, "D"],
    axis: int,
    num_bits: int,
    narrow: bool,
) -> Float32[Tensor, "A B C"]:
    """Round to multiples of what an index of an axis has."""
    bound = 2 ** (num_bits - 1) - 1
    scale = (bound / amax).view([-1 if i == axis else 1 for i in range(3)])
    return (inputs * scale).round().clamp(-(bound + int(not narrow)), bound) / scale


register(
    run_fake_tensor_quant_with_axis,
    "fake_tensor_quant_with_axis/op_kernel/fake_tensor_quant_with_axis.cpp",
    fields="""uint32_t headCoreNum, totalElemNumPerTask, copyNumPerTask, eachHeadCoreTaskNum,
      eachTailCoreTaskNum, countInOneTask, normalCopyElemNumInOneTask, lastCopyElemNumInOneTask,
      amaxTotalNum, tilingMode;
  int32_t maxBound, minBound;""",
    tiling=f"""
  const uint64_t tasks = a.A * (a.axis > 0 ? a.B : 1);
  t.tilingMode = a.axis == 2;
  t.headCoreNum = tasks % kCores;
  t.eachTailCoreTaskNum = tasks / kCores, t.eachHeadCoreTaskNum = tasks / kCores + 1;
  t.totalElemNumPerTask = a.inputs.numel() / tasks;
  t.amaxTotalNum = a.D;
  t.normalCopyElemNumInOneTask = (kMemory - 16384) / 24;
  t.countInOneTask = divided_up(t.totalElemNumPerTask, t.normalCopyElemNumInOneTask);
  t.lastCopyElemNumInOneTask =
      t.totalElemNumPerTask - (t.countInOneTask - 1) * t.normalCopyElemNumInOneTask;
{BOUNDS}""",
    arguments="inputs amax out",
)


@run_fake_tensor_quant_with_axis.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    for shape, axis in (((4, 5, 6), 1), ((2, 50, 7), 0), ((90, 2, 9), 2), ((2, 3, 8000), 1)):
        x = drawn(seed, shape[0] * shape[1] * shape[2], 1)[0].reshape(shape)
        amax = x.abs().amax([i for i in range(3) if i != axis])
        yield {"inputs": x, "amax": amax, "axis": axis, "num_bits": 8, "narrow": True}
