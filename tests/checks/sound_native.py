"""Right operators with C++ kernels: reductions, ties, NaN, computed sizes, a backward."""

from collections.abc import Iterator
from typing import Annotated, Any

import torch
from jaxtyping import Float, Int64, Num
from torch import Tensor

import opsmith
from opsmith import Index

OPERATORS: list[opsmith.Operator] = []


def sound(operator: opsmith.Operator) -> opsmith.Operator:
    OPERATORS.append(operator)
    return operator


@sound
@opsmith.op("sound::scale_rows_slope")
def scale_rows_slope(grad: Float[Tensor, "N C"], x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    inverse = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)
    return inverse * grad - inverse**3 * (grad * x).mean(-1, keepdim=True) * x


@sound
@opsmith.op("sound::scale_rows", parallel_dims=("N",))
def scale_rows(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)


@scale_rows.register_autograd(
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0])
)
def _(ctx: Any, grad: Tensor) -> Tensor:
    return scale_rows_slope(grad, ctx.saved_tensors[0])


@sound
@opsmith.op("sound::first_largest", parallel_dims=("N",))
def first_largest(
    x: Float[Tensor, "N C+1"], base: Float[Tensor, "C"]
) -> tuple[Float[Tensor, "N"], Int64[Tensor, "N"]]:
    found = x.max(1)
    return found.values, found.indices


@first_largest.register_cases
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    nan, inf = torch.nan, torch.inf
    base = torch.zeros(2, dtype=dtype)
    yield {"x": torch.tensor([[1.0, 1, 0], [-inf, -inf, -inf]], dtype=dtype), "base": base}
    yield {"x": torch.tensor([[nan, 1, nan], [2.0, nan, inf]], dtype=dtype), "base": base}


@sound
@opsmith.op("sound::pair_sums", autograd="reference")
def pair_sums(x: Num[Tensor, "N"]) -> Num[Tensor, "(N+1)//2"]:
    odd = x[1::2]
    return x[::2] + torch.nn.functional.pad(odd, (0, (x.shape[0] + 1) // 2 - odd.shape[0]))


@sound
@opsmith.op("sound::row_sums_by_cell", autograd="reference", parallel_dims=("C",))
def row_sums_by_cell(
    x: Float[Tensor, "N C"], cells: Annotated[Int64[Tensor, "N"], Index("{count}")], count: int
) -> Float[Tensor, "{count} C"]:
    return x.new_zeros(count, x.shape[1]).index_add(0, cells, x)


for one in OPERATORS:
    one.register_kernel("cpu", source=f"native/{one.signature.name}.cpp")
