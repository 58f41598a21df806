"""Faults of C++ kernels: memory, threads, and what a call leaves behind."""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import BFloat16, Float, Float16, Float32, Int32
from pairs import PAIRS, Pair
from torch import Tensor

import opsmith

FOLDER = Path(__file__).with_name("native")


def doubled(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


def total(x: Float32[Tensor, "N"]) -> Float32[Tensor, "1"]:
    return x.sum(0, keepdim=True)


def differences(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return torch.diff(x, prepend=x.new_zeros(1))


def counted(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * x.shape[0]


def doubled_rows(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    return x * 2


def doubled_rows_of_any(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    return x * 2


def column_sums(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "C"]:
    return x.sum(0)


def three_nn(
    unknown: Float[Tensor, "N 3"], known: Float[Tensor, "M 3"]
) -> tuple[Float[Tensor, "N 3"], Int32[Tensor, "N 3"]]:
    if known.shape[0] < 3:
        raise ValueError(f"expected at least 3 points, got {known.shape[0]}")
    squares = (unknown[:, None] - known[None]).square().sum(-1)
    found, index = squares.sort(dim=1, stable=True)
    return found[:, :3].sqrt(), index[:, :3].int()


def half_sums(x: Float16[Tensor, "N C"]) -> Float16[Tensor, "N"]:
    return x.float().sum(1).to(x.dtype)


def half_means(x: BFloat16[Tensor, "N C"]) -> BFloat16[Tensor, "N"]:
    return x.float().mean(1).to(x.dtype)


def half_dots(x: Float16[Tensor, "N C"], y: Float16[Tensor, "N C"]) -> Float16[Tensor, "N"]:
    return (x.float() * y.float()).sum(1).to(x.dtype)


def half_norms(x: Float16[Tensor, "N C"]) -> Float16[Tensor, "N"]:
    return x.float().square().sum(1).sqrt().to(x.dtype)


def half_softmax(x: Float16[Tensor, "N C"]) -> Float16[Tensor, "N C"]:
    return x.float().softmax(1).to(x.dtype)


def native(kind, file, reference=doubled, *, row="", strided=False, tags=()):
    """Plant the fault of a file in ``native/``."""
    twins = []
    for suffix, flags in (("wrong", ["-DWRONG"]), ("right", [])):
        name = f"{file}__{suffix}"
        operator = opsmith.op(f"faults::{name}", tags=tags)(reference)
        operator.register_kernel(
            "cpu",
            source=FOLDER / f"{file}.cpp",
            flags=[f"-DNAME={name}", *flags],
            strided=strided,
        )
        twins.append(operator)
    PAIRS.append(Pair(file.replace("_", " "), kind, *twins, row))


for file in (
    "read_past_end",
    "read_before_start",
    "write_past_end",
    "write_into_argument",
    "scratch_past_end",
    "scratch_not_cleared",
    "result_not_cleared",
    "tail_of_vectors",
    "tail_read_whole",
    "aligned_vectors",
    "empty_loop_wraps",
    "division_by_zero",
    "index_in_8_bits",
):
    native("memory", file)
# Only where an argument is zero.
native("memory", "result_half_written", row="reference")
native("memory", "strides_ignored", strided=True)
native("memory", "count_in_8_bits", counted)
native("memory", "flat_reader", doubled_rows_of_any, strided=True)
native("threads", "first_of_piece", differences, row="schedules")
native("threads", "sum_by_all_threads", total, row="schedules")
native("threads", "cursor_shared", row="schedules")
native("threads", "static_scratch", row="side-effects")
native("threads", "late_write")
# The last row of each thread's part: with one thread too, so that every call is wrong.
native("values", "last_row", doubled_rows, row="reference")
native("threads", "by_pieces", row="determinism")
# The right twin adds atomically, in whatever order.
BITWISE = (torch.Tag.nondeterministic_bitwise,)
native("threads", "columns_together", column_sums, row="schedules", tags=BITWISE)
for file in (
    "scratch_kept",
    "memory_leak",
    "denormals_off",
    "rounding_up",
    "file_left_open",
    "thread_left",
):
    native("what a call leaves", file, row="side-effects")
for file in ("throws_in_thread", "ends_the_process"):
    native("exceptions and hangs", file)
# Of two equal distances, the kernel takes the one that an addition in one step makes shorter.
native("neighbours", "three_nn", three_nn)
# The references add in single precision, and so do the right twins.
native("values", "sum_in_half", half_sums)
native("values", "eight_sums_in_half", half_sums)
native("values", "pairs_in_half", half_sums)
native("values", "mean_in_bfloat16", half_means)
native("values", "dot_in_half", half_dots)
native("values", "norm_in_half", half_norms)
native("values", "softmax_in_half", half_softmax)
