"""A reference that writes into its argument in double precision alone hides no wrong kernel."""

import pytest
import torch
from jaxtyping import Float16
from torch import Tensor

import opsmith
from opsmith import checks


def added(name: str, more: int) -> opsmith.Operator:
    @opsmith.op(f"written_arguments::{name}")
    def add_one(x: Float16[Tensor, "N"]) -> Float16[Tensor, "N"]:
        # `to` copies half numbers, and returns numbers in double precision as they are.
        out = x.to(torch.promote_types(x.dtype, torch.float32))
        out += 1
        return out.to(x.dtype)

    @add_one.register_kernel("cpu")
    def _kernel(x: Tensor) -> Tensor:
        return x + more

    return add_one


@pytest.mark.parametrize(("more", "status"), [(1, "passed"), (0, "failed")], ids=["right", "wrong"])
def test_the_right_values_are_those_of_the_first_run(more: int, status: str) -> None:
    operator = added(f"add_{more}", more)
    (row,) = checks.run(operator, select=["reference"], isolate=False, examples=8).rows
    assert row.status == status, row.explain()
