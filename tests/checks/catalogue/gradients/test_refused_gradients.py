"""Leave out, in every row, the cases whose derivative the reference itself refuses."""

from typing import Annotated

import pytest
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

import opsmith
from opsmith import Between, Index, NonDifferentiable, checks

ROWS = ["dispatch", "gradient", "gradcheck", "determinism"]


@opsmith.op("refused::pool", autograd="reference")
def pool(x: Float[Tensor, "N C"], size: Annotated[int, Between(0, 2)]) -> Float[Tensor, "N {size}"]:
    """PyTorch takes a result without elements, and refuses to differentiate it."""
    return torch.nn.functional.adaptive_avg_pool1d(x, size)


@opsmith.op("refused::raises")
def raises(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * x


@raises.register_autograd
def _(ctx, grad):
    raise RuntimeError("not today")


@pool.register_kernel("cpu")
def _(x, size):
    return torch.nn.functional.adaptive_avg_pool1d(x, size)


def test_a_case_whose_derivative_the_reference_refuses_is_left_out():
    report = checks.run(pool, select=ROWS, examples=40, isolate=False)
    assert report.ok, report.explain()
    assert {row.status for row in report.rows} == {"passed"}


# `dispatch` leaves it to the rows of gradients to tell what a backward does wrong.
@pytest.mark.parametrize("row", ROWS[1:])
def test_a_backward_that_raises_where_the_reference_does_not_is_a_failure(row):
    report = checks.run(raises, select=[row], examples=4, isolate=False)
    assert [one.check for one in report.failures] == [row]
    assert "not today" in report.explain()


@opsmith.op("refused::distance", autograd="reference")
def distance(x: Float[Tensor, "N C"], y: Float[Tensor, "N C"]) -> Float[Tensor, ""]:
    """PyTorch's forward formula of this norm gives a tangent of another shape."""
    return torch.ops.aten.norm(x - y, p=2)


def test_a_derivative_in_forward_mode_that_the_reference_refuses_is_left_out():
    distance.register_kernel("cpu", lambda x, y: torch.dist(x, y))
    report = checks.run(distance, select=["gradient", "gradcheck"], examples=4, isolate=False)
    assert report.ok, report.explain()


@opsmith.op("refused::sparse", autograd="reference")
def sparse(
    x: Float[Tensor, "N C"], index: Annotated[Int64[Tensor, "N M"], Index("C")]
) -> Float[Tensor, "N M"]:
    return torch.gather(x, 1, index, sparse_grad=True)


def test_a_sparse_gradient_of_the_reference_is_compared_as_a_dense_one():
    rows = [*ROWS, "double-backward", "nested-gradients"]
    report = checks.run(sparse, select=rows, examples=8, isolate=False)
    assert report.ok, report.explain()


@opsmith.op("refused::turned", autograd="reference", parallel_dims=("N",))
def turned(x: Float32[Tensor, "N 2*C"]) -> Float32[Tensor, "N 2*C"]:
    """PyTorch sees no complex numbers in every layout, nor of nothing."""
    pairs = torch.view_as_complex(x.reshape(x.shape[0], -1, 2).contiguous())
    return torch.view_as_real(pairs * 1j).flatten(1)


@turned.register_kernel("cpu")
def _(x):
    return torch.stack([-x[:, 1::2], x[:, 0::2]], -1).flatten(1)


@turned.register_cases
def _(dtype, seed):
    yield {"x": torch.tensor([[1.0, 2.0, 3.0, 4.0]])}


def test_a_gradient_in_a_layout_that_the_reference_refuses_is_left_out():
    report = checks.run(turned, select=["gradient"], examples=40, isolate=False)
    assert report.ok, report.explain()


@pytest.mark.slow
def test_a_rank_whose_part_the_reference_refuses_to_differentiate_is_left_out():
    report = checks.run(turned, select=["sharding"], examples=48, isolate=False)
    assert report.ok, report.explain()
    assert report.rows[-1].status == "passed"


@opsmith.op("refused::strict")
def strict(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    return x * 2


@strict.register_autograd
def _(ctx, grad):
    if grad.stride() != grad.contiguous().stride():
        raise RuntimeError("not in this layout")
    return grad * 2


def test_a_backward_that_refuses_a_layout_which_the_reference_takes_is_a_failure():
    (failure,) = checks.run(strict, select=["gradient"], examples=40, isolate=False).failures
    assert failure.code == "OPS-GRADIENT-RAISED"
    assert "not in this layout" in failure.explain()


@opsmith.op("refused::constant_beside", autograd="reference")
def constant_beside(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    """Leave the graph where there is nothing to compute."""
    return x * x if x.shape[1] != 1 else torch.ones(x.shape, dtype=x.dtype)


@constant_beside.register_kernel("cpu")
def _(x):
    return x * x if x.shape[1] != 1 else torch.ones(x.shape, dtype=x.dtype)


def test_a_case_that_leaves_the_graph_leaves_the_others_to_be_compared():
    report = checks.run(constant_beside, select=["gradient"], examples=40, isolate=False)
    (row,) = (row for row in report.rows if row.check == "gradient")
    assert row.status == "passed", row.explain()
    assert "cases in which the reference is not differentiable PyTorch" in row.notes[-1]


@opsmith.op("refused::centred", mutates_args=("running",))
def centred(
    x: Float[Tensor, "N"], running: Annotated[Float[Tensor, ""], NonDifferentiable()]
) -> Float[Tensor, "N"]:
    running.copy_(0.5 * running + 0.5 * x.square().sum())
    return x * 3


centred.register_kernel("cpu")(centred.reference)
_FACTORS = {"centred": 3.0}


@centred.register_autograd
def _(ctx, grad, *of_running):
    return grad * _FACTORS["centred"], None


@pytest.mark.parametrize(("factor", "status"), [(3.0, "passed"), (2.0, "failed")])
def test_no_gradient_comes_through_what_is_written_and_not_differentiable(factor, status):
    _FACTORS["centred"] = factor
    rows = ["gradient", "gradcheck"]
    report = checks.run(centred, select=rows, examples=20, isolate=False)
    found = {row.check: row.status for row in report.rows if row.check in rows}
    assert found["gradient"] == status, report.explain()
    assert found["gradcheck"] in (status, "not run"), report.explain()
