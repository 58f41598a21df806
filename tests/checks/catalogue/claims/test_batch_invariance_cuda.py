"""Find CUDA kernels whose last bits depend on the batch, in the emulation, and flag no other."""

from pathlib import Path

import pytest
from planted_batches import total

import opsmith
from opsmith import checks

ROW = "batch-invariance-cuda-on-cpu"
#: What depends on the batch, in the order of the kernels' numbers, and what is told of it.
FAULTS = {
    "another block above a threshold": "a batch of ",
    "rows split into chunks where they are few": "along N gave different bits",
    "a stride of the grid, which is chosen by the batch": "along N gave different bits",
    "atomic additions of floats": "along N gave different bits",
    "a row at an odd place from its end": "along N gave different bits",
    "a row of a tile that a mask hides": "among NaN",
    "vectors where a row begins at one": "along N gave different bits",
}


def _operator(position: int, wrong: bool, claim: tuple[str, ...] = ("N",)) -> opsmith.Operator:
    name = f"fault_{position}__{'wrong' if wrong else 'right'}"
    claims = {"parallel_dims": ("N",), "batch_invariant": claim}
    operator = opsmith.op(f"batches_cuda::{name}", **claims)(total)
    flags = [f"-DNAME={name}", f"-DFAULT={position}", *["-DWRONG"] * wrong]
    operator.register_kernel("cuda", source=Path(__file__).with_name("batches.cu"), flags=flags)
    return operator


def _row(operator: opsmith.Operator, seed: int = 0) -> checks.Row:
    report = checks.run(operator, select=[ROW], seed=seed, seconds=600, isolate=False)
    (row,) = (row for row in report.rows if row.check == ROW)
    return row


@pytest.mark.slow(cases=2)
@pytest.mark.usefixtures("no_shrinking")
@pytest.mark.parametrize("name", FAULTS)
def test_what_depends_on_the_batch_is_found_and_its_right_twin_passes(name: str) -> None:
    position = list(FAULTS).index(name)
    wrong, right = (_row(_operator(position, one)) for one in (True, False))
    assert (wrong.status, wrong.code) == ("failed", "OPS-BATCH-INVARIANCE"), wrong.explain()
    assert FAULTS[name] in wrong.message
    assert right.status == "passed", right.explain()


def test_a_kernel_that_claims_nothing_is_not_built() -> None:
    row = _row(_operator(0, wrong=True, claim=()))
    assert (row.status, row.message) == ("not applicable", "claims no batch_invariant")
