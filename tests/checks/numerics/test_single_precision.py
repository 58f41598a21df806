"""A reference that asks for single precision itself: products of half numbers, summed in float."""

import pytest
import torch
from jaxtyping import Float16, Float32
from torch import Tensor

import opsmith
from opsmith import checks


def _in_order(a: Tensor, b: Tensor) -> Tensor:
    total = torch.zeros(a.shape[0], b.shape[0])
    for k in range(a.shape[1]):
        total += a[:, k, None].float() * b[None, :, k].float()
    return total


def _in_half(a: Tensor, b: Tensor) -> Tensor:
    return (a @ b.T).float()


def _without_the_last(a: Tensor, b: Tensor) -> Tensor:
    return a[:, :-1].float() @ b[:, :-1].float().T


@pytest.mark.parametrize(
    ("name", "kernel", "right"),
    [("order", _in_order, True), ("half", _in_half, False), ("last", _without_the_last, False)],
)
def test_sums_of_another_order_are_right_and_sums_of_less_precision_are_not(name, kernel, right):
    @opsmith.op(f"single_precision::{name}")
    def product(a: Float16[Tensor, "M 16"], b: Float16[Tensor, "N 16"]) -> Float32[Tensor, "M N"]:
        return a.float() @ b.float().T

    product.register_kernel("cpu")(kernel)
    report = checks.run(product, select=["reference"], isolate=False, examples=20)
    (row,) = (row for row in report.rows if row.check == "reference")
    assert (row.status == "passed") == right, row.explain()
