"""`bev_pool_v2` and its backward with kernels in Triton, beside those in CUDA C++.

The declarations and references are those of ``bev_pool_v2.py``, and so is the contract: points in
any order, a sum taken by one program, nothing added atomically.

    opsmith check gallery/bev_pool_v2/in_triton.py --check triton-interpreter
"""

from collections.abc import Iterator
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import wrap_triton

import opsmith

from . import bev_pool_v2 as declared
from .inputs import cases

bev_pool_v2_triton = opsmith.op("bev::bev_pool_v2_triton", parallel_dims=("C",))(
    declared.bev_pool_v2.reference
)
bev_pool_v2_backward_triton = opsmith.op("bev::bev_pool_v2_backward_triton")(
    declared.bev_pool_v2_backward.reference
)


@triton.jit
def sum_rows(
    weights,
    rows,
    weight_of,
    row_of,
    times,
    order,
    starts,
    out,
    C,
    DOUBLE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Sum the weighted rows of one target's points, for one block of channels."""
    target = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = channel < C
    wide = tl.float64 if DOUBLE else tl.float32
    total = tl.zeros((BLOCK,), wide)
    for at in range(tl.load(starts + target), tl.load(starts + target + 1)):
        point = tl.load(order + at)
        holders = tl.load(times + point)
        # What no interval holds is not looked at: infinity times zero is not zero.
        held = holders > 0
        weight = tl.load(weights + tl.load(weight_of + point), mask=held, other=0.0).to(wide)
        row = tl.load(row_of + point).to(tl.int64)
        values = tl.load(rows + row * C + channel, mask=inside & held, other=0.0).to(wide)
        total += weight * holders.to(wide) * values
    tl.store(out + target * C + channel, total, mask=inside)


@triton.jit
def sum_products(
    ours,
    theirs,
    our_row,
    their_row,
    times,
    order,
    starts,
    out,
    C,
    DOUBLE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Sum the scalar products of two rows over one target's points."""
    target = tl.program_id(0).to(tl.int64)
    wide = tl.float64 if DOUBLE else tl.float32
    total = tl.zeros((BLOCK,), wide)
    for at in range(tl.load(starts + target), tl.load(starts + target + 1)):
        point = tl.load(order + at)
        one = tl.load(our_row + point).to(tl.int64) * C
        other = tl.load(their_row + point).to(tl.int64) * C
        holders = tl.load(times + point)
        for first in range(0, C, BLOCK):
            channel = first + tl.arange(0, BLOCK)
            counts = (channel < C) & (holders > 0)
            mine = tl.load(ours + one + channel, mask=counts, other=0.0).to(wide)
            yours = tl.load(theirs + other + channel, mask=counts, other=0.0).to(wide)
            total += holders.to(wide) * mine * yours
    tl.store(out + target, tl.sum(total))


def _by_target(targets: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The points in the order of what they add to, and where each target's begin."""
    ordered, order = torch.sort(targets, stable=True)
    bounds = torch.arange(count + 1, dtype=ordered.dtype, device=ordered.device)
    return order, torch.searchsorted(ordered, bounds)


def _launch(
    kernel: Any, grid: tuple[int, ...], pointers: tuple[Tensor, ...], targets: Tensor, out: Tensor
) -> Tensor:
    """Launch one of the kernels for every element, or row, of `out`."""
    channels = pointers[1].shape[-1]
    if out.numel():
        order, starts = _by_target(targets, grid[0])
        block = min(128, triton.next_power_of_2(channels)) if channels else 1
        size = (grid[0], triton.cdiv(channels, block)) if len(grid) > 1 else grid
        tensors = [tensor.contiguous() for tensor in (*pointers, order, starts)]
        wrap_triton(kernel)[size](*tensors, out, channels, out.dtype == torch.float64, block)
    return out


@bev_pool_v2_triton.register_kernel("cuda", triton=True)
def _forward(
    depth: Tensor,
    feat: Tensor,
    ranks_depth: Tensor,
    ranks_feat: Tensor,
    ranks_bev: Tensor,
    interval_starts: Tensor,
    interval_lengths: Tensor,
    bev_size: tuple[int, int, int],
) -> Tensor:
    times = declared._holders(interval_starts, interval_lengths, ranks_depth.shape[0])
    out = feat.new_empty(feat.shape[0], *bev_size, feat.shape[4])
    cells = feat.shape[0] * bev_size[0] * bev_size[1] * bev_size[2]
    given = (depth, feat, ranks_depth, ranks_feat, times)
    return _launch(sum_rows, (cells, 1), given, ranks_bev, out)


@bev_pool_v2_backward_triton.register_kernel("cuda", triton=True)
def _backward(
    grad: Tensor,
    depth: Tensor,
    feat: Tensor,
    ranks_depth: Tensor,
    ranks_feat: Tensor,
    ranks_bev: Tensor,
    interval_starts: Tensor,
    interval_lengths: Tensor,
) -> tuple[Tensor, Tensor]:
    times = declared._holders(interval_starts, interval_lengths, ranks_depth.shape[0])
    depth_grad = depth.new_empty(depth.shape)
    feat_grad = feat.new_empty(feat.shape)
    bins, pixels = depth.numel(), feat.shape[:4].numel()
    _launch(
        sum_products, (bins,), (grad, feat, ranks_bev, ranks_feat, times), ranks_depth, depth_grad
    )
    _launch(
        sum_rows, (pixels, 1), (depth, grad, ranks_depth, ranks_bev, times), ranks_feat, feat_grad
    )
    return depth_grad, feat_grad


@bev_pool_v2_triton.register_cases
def _cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    yield from cases(dtype, seed)


@bev_pool_v2_backward_triton.register_cases
def _backward_cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    yield from declared._backward_cases(dtype, seed)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:7])


def _gradient(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    depth_grad, feat_grad = bev_pool_v2_backward_triton(grad, *ctx.saved_tensors)
    return depth_grad, feat_grad, None, None, None, None, None, None


bev_pool_v2_triton.register_autograd(_gradient, setup_context=_setup_context)
