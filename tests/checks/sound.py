"""Operators without a fault, of every kind that a declaration can be."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import torch
from jaxtyping import (
    Complex,
    Float,
    Float8e4m3fn,
    Float8e5m2,
    Float32,
    Int32,
    Int64,
    Num,
    UInt16,
    UInt32,
)
from torch import Tensor

import opsmith
from opsmith import Between, Extent, Index, Positive, Sorted, Starts, Total

OPERATORS: list[opsmith.Operator] = []


def sound(operator: opsmith.Operator) -> opsmith.Operator:
    OPERATORS.append(operator)
    return operator


@sound
@opsmith.op("sound::gelu", autograd="reference", parallel_dims=("*shape",))
def gelu(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    # Cancels for negative x, which rounds badly in half precision: not the kernel's fault.
    return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x**3)))


@gelu.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    return 0.5 * (x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x))))


@sound
@opsmith.op("sound::long_sum", autograd="reference")
def long_sum(x: Float[Tensor, "N K"]) -> Float[Tensor, "N"]:
    return x.sum(-1)


@long_sum.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    # One term after the other.
    out = torch.zeros(x.shape[0], dtype=torch.promote_types(x.dtype, torch.float32))
    for k in range(x.shape[1]):
        out = out + x[:, k]
    return out.to(x.dtype)


@long_sum.register_cases
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed)
    yield {"x": torch.randn(2, 2000, generator=generator).to(dtype)}
    yield {"x": torch.rand(2, 1000, generator=generator).to(dtype)}


@sound
@opsmith.op("sound::add_to", mutates_args=("y",))
def add_to(x: Num[Tensor, "N C"], y: Num[Tensor, "N C"]) -> None:
    y.add_(x)


@sound
@opsmith.op("sound::count_and_add", mutates_args=("total",))
def count_and_add(x: Float[Tensor, "N"], total: Float[Tensor, ""]) -> Int64[Tensor, "N"]:
    total += x.sum()
    return torch.arange(x.shape[0])


@sound
@opsmith.op("sound::polar", autograd="reference")
def polar(z: Complex[Tensor, "N"]) -> tuple[Complex[Tensor, "N"], Complex[Tensor, "N"]]:
    return z * z, z.exp()


@sound
@opsmith.op("sound::extremes")
def extremes(x: Float[Tensor, "N C"]) -> tuple[Float[Tensor, "N"], Float[Tensor, "N C"]]:
    return x.sum(1), x.sort(1).values


@sound
@opsmith.op("sound::kept", data_dependent=("K",))
def kept(x: Float[Tensor, "N"], least: float = 0.0) -> Float[Tensor, "K"]:
    return x[x > least]


@sound
@opsmith.op("sound::scaled", autograd="reference", parallel_dims=("N",))
def scaled(
    x: Float[Tensor, "N C"],
    weight: Float[Tensor, "C"] | None = None,
    *,
    factor: float | None = None,
    mode: str = "sum",
) -> Float[Tensor, "N C"]:
    out = x * (2 if mode == "sum" else 3)
    if weight is not None:
        out = out * weight
    return out if factor is None else out * factor


@sound
@opsmith.op("sound::total", autograd="reference")
def total(xs: list[Float[Tensor, "N"]], base: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return sum(xs, base * 1.0)


@sound
@opsmith.op("sound::pick")
def pick(
    x: Num[Tensor, "N C"],
    rows: Annotated[Int32[Tensor, "M"], Index("N")],
    starts: Annotated[Int32[Tensor, "I"], Index("M")],
    lengths: Annotated[Int32[Tensor, "I"], Extent(start="starts", bound="M")],
    repeat: Annotated[int, Between(1, 3)] = 1,
) -> Num[Tensor, "{repeat}*M C"]:
    out = x.index_select(0, rows)
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        out[start : start + length] *= 2
    return out.repeat(repeat, 1)


@sound
@opsmith.op("sound::window")
def window(
    x: Float[Tensor, "*batch H W"], size: tuple[int, int], offsets: Sequence[int] = ()
) -> Float[Tensor, "*batch {size[0]} {size[1]}"]:
    out = x.new_zeros(*x.shape[:-2], *size)
    rows, columns = min(size[0], x.shape[-2]), min(size[1], x.shape[-1])
    out[..., :rows, :columns] = x[..., :rows, :columns]
    return out + float(sum(offsets))


@sound
@opsmith.op("sound::plain")
def plain(x: Tensor) -> Tensor:
    return x * 2


@plain.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@sound
@opsmith.op("sound::written_fake")
def written_fake(x: Float[Tensor, "N C"], weight: Float[Tensor, "C"]) -> Float[Tensor, "C N"]:
    return (x * weight).t().contiguous()


@written_fake.register_fake
def _(x: Tensor, weight: Tensor) -> Tensor:
    return x.new_empty(x.shape[1], x.shape[0])


@sound
@opsmith.op("sound::quantise")
def quantise(x: Float32[Tensor, "N"]) -> Int32[Tensor, "N"]:
    return torch.floor(x / 0.1).to(torch.int32)


@quantise.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    return torch.floor(x / 0.1).to(torch.int32)


@sound
@opsmith.op("sound::noise", tags=(torch.Tag.nondeterministic_seeded,))
def noise(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return torch.zeros_like(x)


@sound
@opsmith.op("sound::halved")
def halved(x: Float[Tensor, "N"], y: Float[Tensor, "N//2"]) -> Float[Tensor, "N//2"]:
    # One element more in x is one too many only every other time.
    return x[: x.shape[0] // 2] + y


@sound
@opsmith.op("sound::segment_sum", autograd="reference", parallel_dims=("C",))
def segment_sum(
    x: Float[Tensor, "N C"],
    offsets: Annotated[Int64[Tensor, "B+1"], Sorted(first=0, last="N")],
    scale: Float[Tensor, "B"],
    power: Annotated[int, Positive()] = 1,
) -> Float[Tensor, "B C"]:
    ids = torch.repeat_interleave(
        torch.arange(scale.shape[0]), offsets.diff(), output_size=x.shape[0]
    )
    out = x.new_zeros(scale.shape[0], x.shape[1]).index_add(0, ids, x)
    return out * scale.unsqueeze(1) ** power


@sound
@opsmith.op("sound::level_means")
def level_means(
    value: Float[Tensor, "S C"],
    shapes: Annotated[Int64[Tensor, "L 2"], Positive(), Total("S", of="shapes")],
    starts: Annotated[Int64[Tensor, "L"], Starts(of="shapes")],
) -> Float[Tensor, "L C"]:
    sizes = shapes.prod(-1)
    levels = torch.repeat_interleave(torch.arange(shapes.shape[0]), sizes, output_size=len(value))
    out = value.new_zeros(shapes.shape[0], value.shape[1]).index_add(0, levels, value)
    return out / sizes.unsqueeze(1)


@sound
@opsmith.op("sound::split_sums", parallel_dims=("C",))
def split_sums(
    x: Float[Tensor, "N C"],
    bins: Annotated[Float[Tensor, "K"], Sorted(strict=True)],
    lengths: Annotated[Sequence[int], Total("N")],
) -> tuple[Float[Tensor, "N C"], Int64[Tensor, "N C"]]:
    parts = [part - part.mean(0, keepdim=True) for part in x.split(list(lengths))]
    return torch.cat(parts), torch.bucketize(x, bins)


@sound
@opsmith.op("sound::dequantise", autograd="reference", parallel_dims=("N",))
def dequantise(
    x: Annotated[Float8e4m3fn[Tensor, "N C"], Between(-4, 4)],
    codes: Annotated[UInt16[Tensor, "N"], Index("K")],
    book: Float[Tensor, "K"],
    seen: UInt32[Tensor, "N"],
) -> tuple[Float[Tensor, "N C"], Float8e5m2[Tensor, "N C"], UInt16[Tensor, "N"]]:
    rows = codes.to(torch.int64)
    out = x.to(book.dtype) * book[rows].unsqueeze(1)
    return (
        out,
        out.detach().to(torch.float8_e5m2),
        (seen.to(torch.int64) % 1000 + rows).to(torch.uint16),
    )


@sound
@opsmith.op("sound::reduce_list", autograd="reference")
def reduce_list(
    xs: list[Float[Tensor, "N C"]], how: Literal["sum", "mean", "max"] = "sum"
) -> Float[Tensor, "N C"]:
    stacked = torch.stack(xs)
    if how == "max":
        return stacked.amax(0)
    return stacked.mean(0) if how == "mean" else stacked.sum(0)
