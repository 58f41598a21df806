"""Right operators of unusual shapes: computed, decided by the data, lists, none at all."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import torch
from jaxtyping import Bool, Float, Int, Int64, Num, Shaped
from torch import Tensor

import opsmith
from opsmith import Between, Index

OPERATORS: list[opsmith.Operator] = []


def sound(operator: opsmith.Operator) -> opsmith.Operator:
    OPERATORS.append(operator)
    return operator


@sound
@opsmith.op("sound::every_other", autograd="reference", parallel_dims=("C",))
def every_other(x: Float[Tensor, "N C"]) -> Float[Tensor, "(N+1)//2 C"]:
    return x[::2].clone()


@sound
@opsmith.op("sound::differences", autograd="reference")
def differences(x: Float[Tensor, "N"]) -> Float[Tensor, "max(N-1,0)"]:
    return x[1:] - x[:-1] if x.shape[0] else x.clone()


@sound
@opsmith.op("sound::slopes", autograd="reference")
def slopes(x: Float[Tensor, "N"]) -> Tensor:
    # With symbolic sizes, PyTorch asks whether N - 1 is 1: for a sample of N = 2, it is.
    return x[1:] - x[:-1]


slopes.register_fake(slopes.reference)


@sound
@opsmith.op("sound::sliding", autograd="reference")
def sliding(
    x: Float[Tensor, "N C"], window: Annotated[int, Between(1, 3)] = 2
) -> Float[Tensor, "max(N-{window}+1,0) C"]:
    count = max(x.shape[0] - window + 1, 0)
    return sum((x[k : k + count] for k in range(window)), x.new_zeros(count, x.shape[1]))


@sound
@opsmith.op("sound::total_row", autograd="reference")
def total_row(x: Float[Tensor, "N C"]) -> Float[Tensor, "1 C"]:
    # A dimension of one element has whatever stride.
    return x.sum(0).as_strided((1, x.shape[1]), (7, 1))


@sound
@opsmith.op("sound::where_positive", data_dependent=("K",))
def where_positive(x: Float[Tensor, "N"]) -> tuple[Float[Tensor, "K"], Int64[Tensor, "K"]]:
    return x[x > 0], (x > 0).nonzero().squeeze(1)


@sound
@opsmith.op("sound::distinct", data_dependent=("K",))
def distinct(x: Int[Tensor, "N"]) -> tuple[Int[Tensor, "K"], Int64[Tensor, "K"]]:
    return torch.unique(x, return_counts=True)


@sound
@opsmith.op("sound::nonzero_by_hand")
def nonzero_by_hand(x: Tensor) -> Tensor:
    return x.reshape(-1).nonzero()


@nonzero_by_hand.register_fake
def _(x: Tensor) -> Tensor:
    count = torch.library.get_ctx().new_dynamic_size()
    return x.new_empty((count, 1), dtype=torch.int64)


@sound
@opsmith.op("sound::copies")
def copies(x: Float[Tensor, "N"], count: Annotated[int, Between(0, 3)] = 2) -> list[Tensor]:
    # None at all for a count of 0.
    return [x * (k + 1) for k in range(count)]


@copies.register_fake
def _(x: Tensor, count: int = 2) -> list[Tensor]:
    return [torch.empty_like(x) for _ in range(count)]


@sound
@opsmith.op("sound::all_products", autograd="reference")
def all_products(x: Float[Tensor, "N"]) -> Tensor:
    # A vector of 65,537 elements has 4,295,098,369 results.
    return x[:, None] * x


@all_products.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], x.shape[0])


@sound
@opsmith.op("sound::doubled_each")
def doubled_each(xs: list[Float[Tensor, "_ C"]]) -> list[Tensor]:
    return [x * 2 for x in xs]


@doubled_each.register_fake
def _(xs: list[Tensor]) -> list[Tensor]:
    return [torch.empty_like(x) for x in xs]


@sound
@opsmith.op("sound::bit_counts", parallel_dims=("*shape",))
def bit_counts(x: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
    rest, found = x & 127, torch.zeros_like(x)
    for _ in range(7):
        found, rest = found + (rest & 1), rest >> 1
    return found


@sound
@opsmith.op("sound::histogram")
def histogram(
    x: Annotated[Int64[Tensor, "N"], Index("{bins}")], bins: Annotated[int, Between(1, 9)]
) -> Int64[Tensor, "{bins}"]:
    return torch.bincount(x, minlength=bins)


@sound
@opsmith.op("sound::reduced", autograd="reference")
def reduced(
    x: Float[Tensor, "*batch C"],
    weight: Float[Tensor, "C"] | None = None,
    *,
    reduction: str = "sum",
    axes: Sequence[int] = (),
    squared: bool = False,
) -> Float[Tensor, "*batch"]:
    own = x * x if squared else x
    if weight is not None:
        own = own * weight
    out = own.sum(-1)
    return out / max(x.shape[-1], 1) if reduction == "mean" else out + len(axes)


@sound
@opsmith.op("sound::chosen", autograd="reference", parallel_dims=("*shape",))
def chosen(
    mask: Bool[Tensor, "*shape"], x: Float[Tensor, "*shape"], y: Float[Tensor, "*shape"]
) -> Float[Tensor, "*shape"]:
    return torch.where(mask, x, y)


@sound
@opsmith.op("sound::turned")
def turned(x: Shaped[Tensor, "*batch H W"]) -> Shaped[Tensor, "*batch W H"]:
    return x.transpose(-1, -2).clone(memory_format=torch.contiguous_format)


@sound
@opsmith.op("sound::momentum", mutates_args=("weight", "velocity"))
def momentum(
    weight: Float[Tensor, "N"],
    velocity: Float[Tensor, "N"],
    grad: Float[Tensor, "N"],
    rate: float = 0.5,
) -> None:
    velocity.mul_(0.75).add_(grad)
    weight.sub_(rate * velocity)


@sound
@opsmith.op("sound::running", autograd="reference")
def running(x: Num[Tensor, "N C"]) -> Num[Tensor, "N C"]:
    return x.cumsum(0).to(x.dtype)


@running.register_cases
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    yield {"x": torch.ones(5, 3, dtype=dtype)}
    yield {"x": torch.ones(4, 2, dtype=dtype)}
