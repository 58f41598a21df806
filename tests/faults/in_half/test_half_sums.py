"""The row `cuda-on-cpu` finds sums in half precision, and flags none that is added in float."""

import pytest
from half_sum_faults import FAULTS, HalfSum

import opsmith
from opsmith import checks


def row_of(operator: opsmith.Operator, seed: int = 0) -> checks.Row:
    """Return the row of an operator's kernel."""
    select = ["cuda-on-cpu"]
    report = checks.run(operator, select=select, seed=seed, seconds=600, isolate=False, examples=20)
    (row,) = (row for row in report.rows if row.check == "cuda-on-cpu")
    return row


@pytest.mark.slow(cases=2)
@pytest.mark.usefixtures("no_shrinking")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_sum_in_half_is_found_and_its_right_twin_passes(fault: HalfSum) -> None:
    wrong, right = row_of(fault.operator(wrong=True)), row_of(fault.operator(wrong=False))
    # The squares of a norm overflow in half precision, too. A long row's exponentials, which are of
    # one sign, are off by more than the tolerance of a sum in half.
    others = {"norm": ("OPS-VALUE-RANGE",), "softmax": ("OPS-SIZE-BOUNDARY",)}
    codes = ("OPS-VALUE-ACCUMULATION", *others.get(fault.form, ()))
    assert (wrong.status, wrong.code in codes) == ("failed", True), wrong.explain()
    assert right.status == "passed", right.explain()
