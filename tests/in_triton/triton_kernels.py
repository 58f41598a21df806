"""Operators whose kernels are in Triton: right ones, and some with one fault each."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor

import opsmith


@triton.jit
def scaled(x, weight):
    return x * weight


@triton.jit
def scale_kernel(x_ptr, weight_ptr, out_ptr, count, C, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    x = tl.load(x_ptr + i, mask=inside)
    weight = tl.load(weight_ptr + i % C, mask=inside)
    tl.store(out_ptr + i, scaled(x, weight) * factor, mask=inside)


@opsmith.op("in_triton::scale", autograd="reference", parallel_dims=("N",))
def scale(
    x: Float[Tensor, "N C"], weight: Float[Tensor, "C"], factor: float
) -> Float[Tensor, "N C"]:
    """Multiply every row of x by weight and by factor."""
    return x * weight * factor


scale.register_kernel(
    "cuda",
    triton=scale_kernel,
    grid=lambda x, BLOCK: (triton.cdiv(x.numel(), BLOCK),),
    meta={"BLOCK": 64, "num_warps": 2},
    args={"count": lambda x: x.numel()},
)


@opsmith.op("in_triton::launched", autograd="reference", parallel_dims=("N",))
def launched(
    x: Float[Tensor, "N C"], weight: Float[Tensor, "C"], factor: float
) -> Float[Tensor, "N C"]:
    """Compute what `scale` does, launched by a function."""
    return x * weight * factor


@launched.register_kernel("cuda", triton=True)
def _launch(x, weight, factor):
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    if out.numel():
        kernel = torch.library.wrap_triton(scale_kernel)
        grid = (triton.cdiv(x.numel(), 32),)
        kernel[grid](x.contiguous(), weight.contiguous(), out, x.numel(), x.shape[1], factor, 32)
    return out


@triton.jit
def row_sums_kernel(x, out, C: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * C + i, mask=i < C, other=0.0)
    tl.store(out + tl.program_id(0), tl.sum(row))


@opsmith.op("in_triton::row_sums")
def row_sums(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N"]:
    """Sum every row; the kernel is compiled for the length of a row."""
    return x.sum(1)


row_sums.register_kernel(
    "cuda",
    triton=row_sums_kernel,
    grid=("N",),
    meta=lambda C: {"BLOCK": triton.next_power_of_2(max(C, 1)), "num_warps": 1 if C < 256 else 4},
)


@triton.jit
def reads_beside(x, out, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i), mask=i < N)


@triton.jit
def writes_beside(x, out, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < N))


@triton.jit
def leaves_some_unwritten(x, out, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < N), mask=i < N - N % 2)


@triton.jit
def one_place_for_two_lanes(x, out, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i // 2 * 2, tl.load(x + i, mask=i < N), mask=i < N)


@triton.jit
def reads_what_the_next_writes(x, out, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < N), mask=i < N)
    after = tl.load(out + i + 1, mask=i + 1 < N, other=0.0)
    tl.store(out + i, tl.load(x + i, mask=i < N) + 0 * after, mask=i < N)


@triton.jit
def wrong_value(x, out, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < N)
    tl.store(out + i, tl.where(i == 3, value + 1, value), mask=i < N)


@triton.jit
def takes_what_the_mask_leaves_out(x, out, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < N)
    tl.store(out + i, value + 0 * tl.sum(value), mask=i < N)


def _copy(name, kernel):
    @opsmith.op(f"in_triton::{name}")
    def copy(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        return x.clone()

    copy.register_kernel(
        "cuda",
        triton=kernel,
        grid=lambda N, BLOCK: (triton.cdiv(N, BLOCK),),
        meta={"BLOCK": 8},
    )
    return copy


FAULTY = {
    kernel.fn.__name__: _copy(kernel.fn.__name__, kernel)
    for kernel in (
        reads_beside,
        writes_beside,
        leaves_some_unwritten,
        one_place_for_two_lanes,
        reads_what_the_next_writes,
        wrong_value,
        takes_what_the_mask_leaves_out,
    )
}


@triton.jit
def copy_kernel(x, out, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < N), mask=i < N)


@opsmith.op("in_triton::takes_memory_as_contiguous")
def takes_memory_as_contiguous(x: Float32[Tensor, "N M"]) -> Float32[Tensor, "N M"]:
    """Copy; the function that launches gets tensors as they are, and does not look at strides."""
    return x.clone()


@takes_memory_as_contiguous.register_kernel("cuda", triton=True)
def _(x):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(x.numel(), 8),)
    torch.library.wrap_triton(copy_kernel)[grid](x, out, x.numel(), 8)
    return out


FAULTY["takes_memory_as_contiguous"] = takes_memory_as_contiguous


@triton.jit
def total_kernel(x, out, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out, tl.load(out) + tl.sum(tl.load(x + i, mask=i < N, other=0.0)))


@opsmith.op("in_triton::total", mutates_args=("out",))
def total(x: Float32[Tensor, "N"], out: Float32[Tensor, "1"]) -> None:
    """Add the sum of x to out; the kernel forgets that programs run at once."""
    out += x.sum()


total.register_kernel(
    "cuda", triton=total_kernel, grid=lambda N, BLOCK: (triton.cdiv(N, BLOCK),), meta={"BLOCK": 8}
)


@triton.jit
def atomic_total_kernel(x, out, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + i, mask=i < N, other=0.0)))


@opsmith.op("in_triton::atomic_total", mutates_args=("out",))
def atomic_total(x: Float32[Tensor, "N"], out: Float32[Tensor, "1"]) -> None:
    """Add the sum of x to out."""
    out += x.sum()


atomic_total.register_kernel(
    "cuda",
    triton=atomic_total_kernel,
    grid=lambda N, BLOCK: (triton.cdiv(N, BLOCK),),
    meta={"BLOCK": 8},
)


def _clear(arguments):
    arguments["out"].zero_()


def _without_empty(configs, arguments, **kwargs):
    return [config for config in configs if config.kwargs["ROUNDS"]]


def _tuned(kernel):
    """Let Triton choose the size of a block, and how many blocks a program takes."""
    sizes = [(16, 1), (32, 1), (16, 0), (16, 2)]
    configs = [triton.Config({"BLOCK": b, "ROUNDS": r}, pre_hook=_clear) for b, r in sizes]
    pruned = {"early_config_prune": _without_empty}
    return triton.autotune(configs, key=["N"], prune_configs_by=pruned)(triton.jit(kernel))


def _doubled_by_rounds(x, out, N, BLOCK: tl.constexpr, ROUNDS: tl.constexpr):
    for turn in range(ROUNDS):
        i = (tl.program_id(0) * ROUNDS + turn) * BLOCK + tl.arange(0, BLOCK)
        tl.atomic_add(out + i, 2 * tl.load(x + i, mask=i < N), mask=i < N)


def _doubled_in_one_round(x, out, N, BLOCK: tl.constexpr, ROUNDS: tl.constexpr):
    i = tl.program_id(0) * ROUNDS * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + i, 2 * tl.load(x + i, mask=i < N), mask=i < N)


def _chosen_by_triton(name, kernel):
    @opsmith.op(f"in_triton::{name}")
    def doubled(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        return x * 2

    @doubled.register_kernel("cuda", triton=True)
    def launch(x):
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        if out.numel():
            # wrap_triton takes no pre_hook, and functions may launch kernels without it too.
            _TUNED[name][lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"] * meta["ROUNDS"]),)](
                x.contiguous(), out, x.numel()
            )
        return out

    _TUNED[name] = _tuned(kernel)
    return doubled


_TUNED = {}
tuned = _chosen_by_triton("tuned", _doubled_by_rounds)
tuned_wrongly = _chosen_by_triton("tuned_wrongly", _doubled_in_one_round)
