"""Faults that show for few layouts, sizes, dtypes, magnitudes or ways to call, and nowhere else."""

from __future__ import annotations

import itertools
import threading

import torch
from jaxtyping import Float, Float32, Int64
from pairs import pair
from torch import Tensor

LAYOUT, SIZE, DTYPE, VALUE = "layouts", "sizes", "dtypes", "values"
PARAMETER, CALL, STATE = "parameters", "ways to call", "state"


def doubled_rows(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    return x * 2


def doubled_blocks(x: Float32[Tensor, "A B C"]) -> Float32[Tensor, "A B C"]:
    return x * 2


def doubled_images(x: Float32[Tensor, "N C H W"]) -> Float32[Tensor, "N C H W"]:
    return x * 2


def doubled_line(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


def doubled_any(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    return x * 2


def added_rows(x: Float[Tensor, "N C"]) -> Float[Tensor, "N"]:
    return x.sum(1)


def _unless(condition):
    """Return a kernel that doubles, and triples where a condition on the tensor holds."""
    return lambda x: x * (3 if condition(x) else 2)


def _order(x):
    """Return the dimensions of size 2 and more, from the largest stride to the smallest."""
    wide = [d for d in range(x.dim()) if x.shape[d] > 1]
    return sorted(wide, key=lambda d: -x.stride(d)), wide


def _padded(x):
    return x.numel() > 0 and x.stride(1) == 1 and x.stride(0) > x.shape[1] and x.shape[0] > 1


def _permuted(x):
    order, wide = _order(x)
    return order not in (wide, wide[::-1]) and 0 not in x.stride()


def _stepped_rows(x):
    """Return whether the rows are those of every other row of a matrix."""
    return x.shape[0] > 1 and x.stride(1) == 1 and x.stride(0) == 2 * x.shape[1] > 2


pair(LAYOUT, "rows of a padded matrix", doubled_rows, wrong=_unless(_padded))
pair(
    LAYOUT,
    "contiguous memory with an offset",
    doubled_line,
    wrong=_unless(lambda x: x.is_contiguous() and x.storage_offset() > 0),
)
pair(LAYOUT, "dimensions permuted, not reversed", doubled_blocks, wrong=_unless(_permuted))
pair(
    LAYOUT,
    "channels last",
    doubled_images,
    wrong=_unless(
        lambda x: x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    ),
)
pair(LAYOUT, "every other row", doubled_rows, wrong=_unless(_stepped_rows))
pair(
    LAYOUT,
    "two expanded dimensions",
    doubled_blocks,
    wrong=_unless(lambda x: sum(s == 0 for s in x.stride()) > 1 and x.numel() > 1),
)
pair(
    LAYOUT,
    "windows that overlap",
    doubled_rows,
    wrong=_unless(lambda x: min(x.shape) > 1 and x.stride(0) == x.stride(1) == 1),
)
pair(
    LAYOUT,
    "a dimension of one with a stride of its own",
    doubled_rows,
    wrong=_unless(lambda x: x.shape[0] == 1 and x.numel() > 1 and x.stride(0) != x.shape[1]),
)


def _first(x, count):
    out = x.clone().view(-1) * 2
    out[count:] = 0
    return out.view(x.shape)


pair(SIZE, "elements from 40000 on", doubled_any, wrong=lambda x: _first(x, 40_000))
pair(SIZE, "elements from 65536 on", doubled_line, wrong=lambda x: _first(x, 65_536))
pair(
    SIZE,
    "rows of a wide matrix from 40000 elements on",
    doubled_rows,
    wrong=lambda x: _first(x, 40_000),
)
pair(
    SIZE,
    "elements from 40000 on in half precision",
    doubled_any,
    wrong=lambda x: _first(x, 40_000) if x.dtype is torch.float16 else x * 2,
)
pair(SIZE, "no more than five dimensions", doubled_any, wrong=_unless(lambda x: x.dim() > 5))


def _forgets(x, count, dtypes):
    return x[:, :count].sum(1) if x.dtype in dtypes else x.sum(1)


pair(
    DTYPE,
    "rows of double longer than 130",
    added_rows,
    wrong=lambda x: _forgets(x, 130, (torch.float64,)),
)
pair(
    DTYPE,
    "long rows of half that hold different values",
    added_rows,
    wrong=lambda x: (
        _forgets(x, 256, (torch.float16,))
        if x.numel() and bool((x != x[:, :1]).any())
        else x.sum(1)
    ),
)


def _without_a_tenth(x):
    if x.dtype is not torch.bfloat16 or x.shape[1] < 600:
        return x.sum(1)
    return x[:, : x.shape[1] * 9 // 10].sum(1)


pair(DTYPE, "a tenth of a long bfloat16 row", added_rows, wrong=_without_a_tenth)


def scaled(x: Float32[Tensor, "N"], factor: float = 1.0) -> Float32[Tensor, "N"]:
    return x * factor


def shifted(x: Int64[Tensor, "N"], by: int = 1) -> Int64[Tensor, "N"]:
    return x + by


pair(
    PARAMETER,
    "a number rounded to bfloat16",
    scaled,
    wrong=lambda x, factor: x * float(torch.tensor(factor, dtype=torch.bfloat16)),
)
pair(
    PARAMETER,
    "a number above 1000 cut off",
    scaled,
    wrong=lambda x, factor: x * max(-1000.0, min(factor, 1000.0)),
)
pair(
    PARAMETER,
    "an integer above 1000 that is not a round one",
    shifted,
    wrong=lambda x, by: x + (by + 1 if by > 1000 and by not in (70000,) else by),
)


def relu_like(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return torch.where(x > 0, x, x * 0.25)


def counted(x: Int64[Tensor, "N"]) -> Int64[Tensor, "N"]:
    return x // 3


def _between(low, high):
    def kernel(x):
        size = x.abs()
        return torch.where((size > low) & (size < high), x * 0.5, relu_like(x))

    return kernel


pair(VALUE, "values between 600 and 1e15", relu_like, wrong=_between(600, 1e15))
pair(VALUE, "values between 1e-17 and 1e-7", relu_like, wrong=_between(1e-17, 1e-7))
pair(
    VALUE,
    "every value between 600 and 1e15",
    added_rows,
    wrong=lambda x: x.sum(1) * 1.5 if x.numel() and 600 < float(x.abs().max()) < 1e15 else x.sum(1),
)
pair(
    VALUE,
    "integers between 100 and 2**40",
    counted,
    wrong=lambda x: torch.where((x.abs() > 100) & (x.abs() < 2**40), x // 3 + 1, x // 3),
)


pair(
    CALL,
    "called without gradients",
    doubled_line,
    wrong=_unless(lambda _: not torch.is_grad_enabled() and not torch.is_inference_mode_enabled()),
)
pair(
    CALL,
    "called in inference mode",
    doubled_line,
    wrong=_unless(lambda _: torch.is_inference_mode_enabled()),
)
pair(
    CALL,
    "called from a second thread",
    doubled_line,
    wrong=_unless(lambda _: threading.current_thread() is not threading.main_thread()),
)
pair(
    CALL,
    "called with more than eight threads",
    doubled_line,
    wrong=_unless(lambda _: torch.get_num_threads() > 8),
)

_number = itertools.count()
pair(
    STATE,
    "wrong from the 3000th call on",
    doubled_line,
    wrong=_unless(lambda _: next(_number) >= 3000),
)
