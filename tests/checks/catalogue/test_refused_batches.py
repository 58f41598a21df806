"""Batch numbers that the reference refuses beside others: that is no failure of the kernel."""

import torch
from jaxtyping import Float64
from torch import Tensor

import opsmith
from opsmith import checks


@opsmith.op("refused::root")
def root(x: Float64[Tensor, "N N"], scale: Float64[Tensor, "N"]) -> Float64[Tensor, "N N"]:
    if bool((scale <= x.diagonal().min()).any()):
        raise RuntimeError("a scale above the least")
    return torch.linalg.cholesky(x) * scale


@root.register_cases
def _(dtype, seed):
    for least in (0.5, 20.0):
        x = torch.tensor([[3.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 3.0]]).double()
        yield {
            "x": x + least * torch.eye(3),
            "scale": least + torch.tensor([4.0, 5.0, 6.0]).double(),
        }


@root.register_kernel("cpu")
def _(x, scale):
    return torch.linalg.cholesky(x) * scale


def test_a_registered_case_whose_shuffled_numbers_are_refused_is_batched_as_it_is():
    (row,) = checks.run(root, select=["vmap"], isolate=False).rows
    assert row.status == "passed", row.explain()
    assert row.cases >= 2


def test_a_wrong_batch_of_such_a_case_is_found():
    @root.register_vmap
    def _(info, in_dims, x, scale):
        x, scale = (
            one if dim is None else one.movedim(dim, 0)
            for one, dim in zip((x, scale), in_dims, strict=True)
        )
        return torch.linalg.cholesky(x) * scale.unsqueeze(-1), 0

    (row,) = checks.run(root, select=["vmap"], isolate=False).rows
    assert row.status == "failed" and row.code == "OPS-VMAP-WRONG", row
