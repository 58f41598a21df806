"""Rows that need other values or layouts take the author's cases where only these are valid."""

import pytest
import torch
from jaxtyping import Float, Float8e4m3fn
from torch import Tensor

import opsmith
from opsmith import checks

ROWS = ["statefulness", "vmap"]
STRIDE = "OPS-LAYOUT-STRIDE"


def weighed(name, kernel, cases=None):
    """Declare an operator in which the first column of `rows` is the number of a row of `x`."""

    def weigh(x: Float[Tensor, "N C"], rows: Float[Tensor, "K 2"]) -> Float[Tensor, "K C"]:
        at = rows[:, 0].long()
        torch._assert_async(((at >= 0) & (at < x.shape[0])).all(), "a row that is not there")
        return x[at] * rows[:, 1:]

    made = opsmith.op(f"only_registered::{name}")(weigh)
    made.register_kernel("cpu", kernel)

    @made.register_cases(only=True)
    def own(dtype, seed):
        generator = torch.Generator().manual_seed(seed)
        for n, k in ((1, 1), (3, 2), (4, 7)):
            at = torch.randint(n, (k,), generator=generator).to(dtype)
            by = torch.randn(k, generator=generator).to(dtype)
            x = torch.randn(n, 3, generator=generator).to(dtype)
            yield {"x": x, "rows": torch.stack([at, by], 1)}

    return made


def doubled(name, kernel):
    """Declare an operator of three dimensions with a few cases of the author's."""

    def double(x: Float[Tensor, "B N C"]) -> Float[Tensor, "B N C"]:
        return x * 2

    made = opsmith.op(f"only_registered::{name}")(double)
    made.register_kernel("cpu", kernel)

    @made.register_cases(only=True)
    def own(dtype, seed):
        generator = torch.Generator().manual_seed(seed)
        for shape in ((3, 4, 5), (5, 7, 2), (2, 3, 3)):
            yield {"x": torch.randn(shape, generator=generator).to(dtype)}

    return made


def right(x, rows):
    return x[rows[:, 0].long()] * rows[:, 1:]


KEPT = {}


def kept(x, rows):
    """Keep results by the place of the argument in memory."""
    key = (x.data_ptr(), rows.data_ptr(), rows.shape)
    if key not in KEPT:
        KEPT[key] = right(x, rows)
    return KEPT[key].clone()


def failures(operator, select, seed=0):
    report = checks.run(operator, select=select, isolate=False, seed=seed, examples=12)
    assert all(row.cases for row in report.rows)
    return {row.check: row.code for row in report.failures}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_numbers_that_mean_something_are_taken_as_they_are(seed):
    assert failures(weighed(f"right{seed}", right), ROWS, seed) == {}


@pytest.mark.slow
def test_a_result_of_an_earlier_call_is_found_by_another_case_of_the_author():
    found = failures(weighed("kept", kept), ROWS)
    assert found["statefulness"] == "OPS-STATE-EARLIER"


@pytest.mark.slow
def test_a_batch_of_the_authors_cases_shows_samples_that_are_mixed():
    operator = weighed("mixed", right)

    @operator.register_vmap
    def batched(info, in_dims, x, rows):
        pairs = list(zip((x, rows), in_dims, strict=True))
        first = [one if dim is None else one.select(dim, 0) for one, dim in pairs]
        return torch.stack([right(*first)] * info.batch_size), 0

    assert failures(operator, ["vmap"]) == {"vmap": "OPS-VMAP-WRONG"}


@pytest.mark.slow
def test_a_float8_tensor_which_pytorch_does_not_multiply_is_no_fault_of_the_kernel():
    def scaled(x: Float[Tensor, "N"], by: Float8e4m3fn[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x * by.to(x.dtype)

    made = opsmith.op("only_registered::scaled")(scaled)
    made.register_kernel("cpu", lambda x, by: x * by.to(x.dtype))
    assert failures(made, ROWS) == {}


def write_where_contiguous(x):
    kept = x.contiguous()
    kept.mul_(2)
    return kept.clone()


def wrong_where(wrong):
    return lambda x: x * (3 if wrong(x) and min(x.shape) > 1 else 2)


@pytest.mark.parametrize(
    ("row", "kernel", "code"),
    [
        ("mutation", write_where_contiguous, "OPS-MUTATION-UNDECLARED"),
        ("fake", lambda x: x.contiguous() * 2, "OPS-FAKE-STRIDE"),
        ("layouts", wrong_where(lambda x: x.stride(0) > x.stride(2) > x.stride(1)), STRIDE),
        ("layouts", wrong_where(lambda x: x.dtype.itemsize == 8 and x.stride(2) != 1), STRIDE),
    ],
    ids=["contiguous alone", "strides", "permuted", "one dtype"],
)
def test_the_authors_cases_are_laid_out_as_samples_are(row, kernel, code, request):
    operator = doubled(f"{row}_{request.node.callspec.id.replace(' ', '_')}", kernel)
    if row == "fake":
        operator.register_fake(torch.empty_like)
    report = checks.run(operator, select=[row], isolate=False)
    assert [failed.code for failed in report.failures] == [code]


def test_a_layout_that_no_case_of_the_author_can_have_is_in_the_report():
    operator = doubled("told", lambda x: x * 2)
    (row,) = checks.run(operator, select=["layouts"], isolate=False).rows
    assert row.status == "passed"
    assert row.notes == (
        "no case of expanded, overlapping, odd strides of size 1: no registered case can be laid "
        "out so",
    )
