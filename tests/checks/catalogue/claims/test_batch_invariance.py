"""Find kernels whose last bits depend on the batch by `batch-invariance`, and flag no other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from jaxtyping import Float, Float32
from planted_batches import PLANTED, Planted, in_lanes, scaled, total
from torch import Tensor

import opsmith
from opsmith import checks

ROW = "batch-invariance"


def _row(operator: opsmith.Operator) -> checks.Row:
    report = checks.run(operator, select=[ROW], isolate=False)
    (row,) = (row for row in report.rows if row.check == ROW)
    return row


@pytest.mark.slow(cases=6)
@pytest.mark.usefixtures("no_shrinking")
@pytest.mark.parametrize("one", PLANTED, ids=lambda one: one.name)
def test_what_depends_on_the_batch_is_found_and_its_right_twin_passes(one: Planted) -> None:
    wrong, right = _row(one.wrong), _row(one.right)
    assert wrong.status == "failed"
    assert "along N gave different bits: " in wrong.message
    assert wrong.code in ("OPS-BATCH-INVARIANCE", "OPS-DETERMINISM-THREADS")
    assert right.status == "passed", right.explain()


def _norm(
    name: str, claim: tuple[str, ...], lanes: Callable[[int], int] = lambda n: 1
) -> opsmith.Operator:
    @opsmith.op(f"batch_claims::{name}", parallel_dims=("N",), batch_invariant=claim)
    def norm(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)

    @norm.register_kernel("cpu")
    def kernel(x: Tensor) -> Tensor:
        wide = torch.promote_types(x.dtype, torch.float32)
        return scaled(x.to(wide), lanes(x.shape[0])).to(x.dtype)

    return norm


def test_the_message_names_both_batches_of_a_kernel_that_is_right_within_the_tolerance() -> None:
    parts = _norm("parts", ("N",), lambda n: 4 if n < 4 else 1)
    assert checks.run(parts, select=["reference", "parallel-dims"], isolate=False).ok
    row = _row(parts)
    assert row.code == "OPS-BATCH-INVARIANCE"
    assert row.message.startswith("a batch of 8 and a batch of 2 along N gave different bits: ")
    assert "(float32)" in row.message


def test_what_holds_and_is_not_claimed_is_offered_and_what_does_not_is_not() -> None:
    row = _row(_norm("unclaimed", ()))
    assert row.status == "not applicable"
    assert row.message == (
        "claims no batch_invariant; true on every case tried, and not claimed: "
        "batch_invariant=('N',)"
    )
    row = _row(_norm("unclaimed_parts", (), lambda n: 4 if n < 4 else 1))
    assert (row.status, row.message) == ("not applicable", "claims no batch_invariant")


def test_a_dimension_whose_size_other_sizes_depend_on_says_so() -> None:
    @opsmith.op("batch_claims::halved", parallel_dims=("N", "C"), batch_invariant=("N", "C"))
    def halved(
        x: Float32[Tensor, "N C"], rest: Float32[Tensor, "N//2 C"]
    ) -> Float32[Tensor, "N C"]:
        return x * 2

    row = _row(halved)
    assert row.status == "passed"
    assert "N cannot be sliced: the dimension 'N//2' of 'rest' depends on its size" in row.notes


def test_a_claim_that_is_no_parallel_dimension_is_refused() -> None:
    with pytest.raises(opsmith.DeclarationError) as error:
        opsmith.op("batch_claims::sums", batch_invariant=("N",))(total)
    assert str(error.value) == (
        "batch_claims::sums: batch_invariant names 'N', and parallel_dims does not: a slice that "
        "depends on others has other bits in another batch"
    )
    with pytest.raises(opsmith.DeclarationError, match=r'write batch_invariant=\("N",\)'):
        opsmith.op("batch_claims::sums", batch_invariant="N")(total)


def test_slices_of_arguments_that_are_written_are_compared_too() -> None:
    @opsmith.op(
        "batch_claims::added",
        mutates_args=("out",),
        parallel_dims=("N",),
        batch_invariant=("N",),
    )
    def added(x: Float32[Tensor, "N C"], out: Float32[Tensor, "N"]) -> None:
        out.add_(x.sum(-1))

    @added.register_kernel("cpu")
    def kernel(x: Tensor, out: Tensor) -> None:
        out.add_(in_lanes(x, 4 if x.shape[0] > 2 else 1))

    row = _row(added)
    assert row.code == "OPS-BATCH-INVARIANCE"
    assert "gave different bits: out[" in row.message


def test_a_batch_that_a_kernel_refuses_is_no_failure_of_one_that_claims_nothing() -> None:
    @opsmith.op("batch_claims::few", parallel_dims=("N",))
    def few(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
        return x * 2

    @few.register_kernel("cpu")
    def kernel(x: Tensor) -> Tensor:
        if x.shape[0] > 1000:
            raise ValueError("too many rows")
        return x * 2

    row = _row(few)
    assert (row.status, row.message) == ("not applicable", "claims no batch_invariant")
