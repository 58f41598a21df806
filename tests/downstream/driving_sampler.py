"""Gradients of samplers between pixels, which DrivingSDK (BSD-3) has in Ascend C."""

from collections.abc import Iterator
from typing import Any

import torch
from driving import register
from jaxtyping import Float32
from torch import Tensor

import opsmith

MODES = ("zeros", "border")


def gradients(grad: Tensor, image: Tensor, grid: Tensor, padding: int, align: bool) -> Any:
    """Give the gradients of PyTorch's sampler, of images whose channels are last."""
    with torch.enable_grad():
        image, grid = image.detach().requires_grad_(), grid.detach().requires_grad_()
        sampled = torch.nn.functional.grid_sample(
            image.movedim(-1, 1), grid, padding_mode=MODES[padding], align_corners=align
        )
        return torch.autograd.grad(sampled, (image, grid), grad.movedim(-1, 1))


@opsmith.op("driving::run_grid_sampler2d_v2_grad")
def run_grid_sampler2d_v2_grad(
    grad: Float32[Tensor, "B P Q C"],
    x: Float32[Tensor, "B H W C"],
    grid: Float32[Tensor, "B P Q 2"],
    padding: int,
    align: bool,
) -> tuple[Float32[Tensor, "B H W C"], Float32[Tensor, "B P Q 2"]]:
    """Give the gradients of the image and of the grid."""
    return gradients(grad, x, grid, padding, align)


register(
    run_grid_sampler2d_v2_grad,
    "grid_sampler2d_v2/op_kernel/grid_sampler2d_v2_grad.cpp",
    fields="""uint32_t batch, pNumPerCore, tailPNum, channel, alignedChannel, height, width, gridH,
      gridW, blockNum, calcCountPerLoop, interpolation, padding;
  bool alignCorners;
  int32_t groupSize, coordPosition;""",
    tiling="""
  const uint64_t points = a.B * a.P * a.Q;
  t.batch = a.B, t.height = a.H, t.width = a.W, t.channel = a.C, t.gridH = a.P, t.gridW = a.Q;
  blocks = t.blockNum = std::min(points, kCores);
  t.pNumPerCore = points / blocks, t.tailPNum = points % blocks;
  t.groupSize = a.C <= 4 ? 64 : a.C <= 16 ? 32 : a.C <= 128 ? 2 : 1;
  t.coordPosition = 4, t.alignedChannel = rounded_up(a.C, 8);
  const uint64_t extra = uint64_t(t.alignedChannel) * 4 * 4 * t.groupSize * 2;
  t.calcCountPerLoop = rounded_up((kMemory - extra) / 47, 256) / 4;
  t.padding = a.padding, t.alignCorners = a.align;
  zero(a.out0);
""",
    arguments="grad x grid out0 out1",
)


@run_grid_sampler2d_v2_grad.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = torch.Generator().manual_seed(seed)
    for b, h, w, c, p, q, padding in (
        (1, 4, 4, 8, 2, 4, 0),
        (2, 7, 9, 16, 5, 8, 1),
        (1, 6, 5, 3, 9, 9, 0),
        (1, 6, 5, 40, 50, 9, 0),
    ):
        yield {
            "grad": torch.randn(b, p, q, c, generator=random),
            "x": torch.randn(b, h, w, c, generator=random),
            "grid": torch.rand(b, p, q, 2, generator=random) * 2.4 - 1.2,
            "padding": padding,
            "align": bool(padding),
        }


@opsmith.op("driving::run_grid_sampler3d_grad_v1")
def run_grid_sampler3d_grad_v1(
    grad: Float32[Tensor, "B O P Q C"],
    x: Float32[Tensor, "B D H W C"],
    grid: Float32[Tensor, "B O P Q 3"],
    padding: int,
    align: bool,
) -> tuple[Float32[Tensor, "B D H W C"], Float32[Tensor, "B O P Q 3"]]:
    """Give the gradients of the volume and of the grid."""
    return gradients(grad, x, grid, padding, align)


register(
    run_grid_sampler3d_grad_v1,
    "grid_sampler3d_v1/op_kernel/grid_sampler3d_grad_v1.cpp",
    struct="GridSampler3dGradV1TilingData",
    fields="""uint32_t batch, pNumPerCore, tailPNum, channel, depth, height, width, gridD, gridH,
      gridW, blockNum, ubFactorElement, interpolation, padding;
  bool alignCorners;
  uint32_t group;""",
    tiling="""
  const uint64_t points = a.B * a.O * a.P * a.Q;
  t.batch = a.B, t.depth = a.D, t.height = a.H, t.width = a.W, t.channel = a.C;
  t.gridD = a.O, t.gridH = a.P, t.gridW = a.Q;
  blocks = t.blockNum = std::min(points, kCores);
  t.pNumPerCore = points / blocks, t.tailPNum = points % blocks, t.group = 1;
  const uint64_t extra = 17 * rounded_up(a.C, 8) * 4, free = kMemory - 10240 - 64;
  t.ubFactorElement = (free - extra) / 115 / 256 * 256 / 4;
  t.padding = a.padding, t.alignCorners = a.align;
  zero(a.out0), zero(a.out1);
""",
    arguments="grad x grid out0 out1",
    workspace="memory.room(64)",
    before="#undef INT_MAX  // which it names a constant\n#undef INT_MIN",
)


@run_grid_sampler3d_grad_v1.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = torch.Generator().manual_seed(seed)
    for b, d, h, w, c, o, p, q, padding in (
        (1, 3, 4, 4, 8, 2, 2, 4, 0),
        (2, 3, 7, 9, 16, 2, 5, 8, 1),
        (1, 2, 6, 5, 3, 3, 9, 9, 0),
    ):
        yield {
            "grad": torch.randn(b, o, p, q, c, generator=random),
            "x": torch.randn(b, d, h, w, c, generator=random),
            "grid": torch.rand(b, o, p, q, 3, generator=random) * 2.4 - 1.2,
            "padding": padding,
            "align": bool(padding),
        }
