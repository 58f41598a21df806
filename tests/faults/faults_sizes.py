"""Faults that only some sizes, ranks, layouts and dtypes show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float, Float32
from pairs import pair
from torch import Tensor

KIND = "sizes"


def doubled(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


def doubled_rows(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    return x * 2


def added_rows(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N"]:
    return x.sum(1)


def _without_tail(x):
    out = x * 2
    out[x.shape[0] // 8 * 8 :] = x[x.shape[0] // 8 * 8 :]
    return out


def _first(x, count):
    out = x * 2
    out[count:] = 0
    return out


pair(
    KIND,
    "the tail of a loop by eight",
    doubled,
    wrong=_without_tail,
    said={"reference": ("expected",)},
)
pair(
    KIND,
    "the first column left out",
    added_rows,
    wrong=lambda x: x[:, 1:].sum(1),
    said={"reference": ("expected",)},
)
pair(KIND, "columns from 256 on ignored", added_rows, wrong=lambda x: x[:, :256].sum(1))
pair(KIND, "a block of 1024 and no second one", doubled, wrong=lambda x: _first(x, 1024))
pair(KIND, "a grid of 64 blocks of 64", doubled, wrong=lambda x: _first(x, 4096))
pair(KIND, "only the first row", doubled_rows, wrong=lambda x: (x[:1] * 2).expand_as(x).clone())


def _transposed_if_square(x):
    return (x.t() if x.shape[0] == x.shape[1] else x).contiguous() * 2


pair(KIND, "square matrices transposed", doubled_rows, wrong=_transposed_if_square)


def biased(x: Float32[Tensor, "N C"], bias: Float32[Tensor, "C"]) -> Float32[Tensor, "N C"]:
    return x + bias


pair(
    KIND,
    "bias along the wrong dimension of a square",
    biased,
    wrong=lambda x, bias: x + (bias[:, None] if x.shape[0] == x.shape[1] else bias),
)


def _not_empty(x):
    if not x.numel():
        raise ValueError("no elements")
    return x * 2


pair(
    KIND,
    "an error for no elements",
    doubled,
    wrong=_not_empty,
    said={"empty-sizes": ("ValueError",)},
)
pair(
    KIND,
    "a single column left out",
    added_rows,
    wrong=lambda x: x[:, 1:].sum(1) if x.shape[1] == 1 else x.sum(1),
)


def flat(x: Float32[Tensor, "*shape"]) -> Float32[Tensor, "*shape"]:
    return x * 2


def _few_dims(x):
    if x.dim() > 3:
        raise NotImplementedError("more than three dimensions")
    return x * 2


pair(KIND, "no more than three dimensions", flat, wrong=_few_dims)


def joined(
    xs: list[Float32[Tensor, "N C"]], first: Float32[Tensor, "N C"]
) -> Float32[Tensor, "N C"]:
    return sum(xs, first * 1)


pair(KIND, "no more than four of a list", joined, wrong=lambda xs, first: sum(xs[:4], first * 1))


def flipped(x: Float32[Tensor, "A B C"], dims: Sequence[int] = (0,)) -> Float32[Tensor, "A B C"]:
    return x.flip(sorted({d % 3 for d in dims}))


pair(
    KIND,
    "negative dimensions ignored",
    flipped,
    wrong=lambda x, dims: x.flip(sorted({d for d in dims if 0 <= d < 3})),
)

LAYOUT = "layouts"


def _linear(x):
    rows = (x.shape[1], 1) if x.stride() == (1, x.shape[0]) else x.stride()
    return torch.as_strided(x, x.shape, rows, x.storage_offset()) * 2


pair(
    LAYOUT,
    "strides not read",
    doubled_rows,
    wrong=_linear,
    said={"layouts": ("transposed",)},
)
pair(
    LAYOUT,
    "the storage offset not read",
    doubled_rows,
    wrong=lambda x: torch.as_strided(x, x.shape, x.stride(), 0) * 2,
)
pair(
    LAYOUT,
    "view of what is not contiguous",
    doubled_rows,
    wrong=lambda x: (x.view(-1) * 2).view(x.shape),
)
pair(
    LAYOUT,
    "expanded memory doubled twice",
    doubled_rows,
    wrong=lambda x: x * 4 if 0 in x.stride() and x.numel() else x * 2,
    said={"layouts": ("expanded",)},
)

DTYPE = "dtypes"


def tripled(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 3 + 1 / 3


pair(
    DTYPE,
    "float64 computed in float32",
    tripled,
    wrong=lambda x: (x.float() * 3 + 1 / 3).to(x.dtype),
    right=lambda x: (x.double() * 3 + 1 / 3).to(x.dtype),
)
pair(
    DTYPE,
    "wrong for bfloat16 alone",
    tripled,
    wrong=lambda x: x * 3 + (0.25 if x.dtype is torch.bfloat16 else 1 / 3),
)
pair(
    DTYPE,
    "half comes back as float",
    tripled,
    wrong=lambda x: (x.float() * 3 + 1 / 3) if x.dtype is torch.float16 else x * 3 + 1 / 3,
)
pair(
    DTYPE,
    "no bfloat16, as NumPy has none",
    tripled,
    wrong=lambda x: torch.from_numpy(x.numpy() * 3 + 1 / 3),
    said={"reference": ("bfloat16",)},
)

PARAMETER = "parameters"


def reduced(
    x: Float32[Tensor, "N C"], mode: Literal["sum", "mean", "max"] = "sum"
) -> Float32[Tensor, "N"]:
    if x.shape[1] == 0:
        return x.new_zeros(x.shape[0])
    return {"sum": x.sum, "mean": x.mean, "max": x.amax}[mode](1)


pair(
    PARAMETER,
    "one of three choices ignored",
    reduced,
    wrong=lambda x, mode: reduced(x, "sum" if mode == "mean" else mode),
)


def scaled(x: Float32[Tensor, "N"], factor: int = 1, invert: bool = False) -> Float32[Tensor, "N"]:
    return -x * factor if invert else x * factor


pair(PARAMETER, "a flag ignored", scaled, wrong=lambda x, factor, invert: x * factor)
pair(
    PARAMETER,
    "negative numbers taken for positive",
    scaled,
    wrong=lambda x, factor, invert: scaled(x, abs(factor), invert),
)
pair(
    PARAMETER,
    "a number in eight bits",
    scaled,
    wrong=lambda x, factor, invert: scaled(x, (factor + 128) % 256 - 128, invert),
)


def weighted(
    x: Float32[Tensor, "N"], weight: Float32[Tensor, "N"] | None = None
) -> Float32[Tensor, "N"]:
    return x * 2 if weight is None else x * weight


pair(
    PARAMETER,
    "no weight taken for ones",
    weighted,
    wrong=lambda x, weight: x * (1 if weight is None else weight),
)


def difference(x: Float32[Tensor, "N"], y: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x - 2 * y


def _in_place(x, y):
    if x.data_ptr() == y.data_ptr():
        return x * 0
    return x - 2 * y


pair(PARAMETER, "the same tensor twice", difference, wrong=_in_place)
