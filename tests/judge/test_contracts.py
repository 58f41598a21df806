"""A specification that claims batch invariance has its candidates judged by it."""

from pathlib import Path

import pytest

from opsmith.judge import Verdict, judge

SPEC = """
import opsmith
from jaxtyping import Float32
from torch import Tensor


@opsmith.op("contracts::total", parallel_dims=("N",), batch_invariant=("N",))
def total(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N"]:
    return x.sum(-1)
"""
CANDIDATE = """
from total_spec import total


@total.register_kernel("cpu")
def kernel(x):
    lanes = [x.new_zeros(x.shape[0]) for _ in range(LANES)]
    for c in range(x.shape[1]):
        lanes[c % LANES] = lanes[c % LANES] + x[:, c]
    return sum(lanes[1:], lanes[0])
"""


def _judged(folder: Path, lanes: str) -> Verdict:
    (folder / "total_spec.py").write_text(SPEC)
    (folder / "kernels.py").write_text(CANDIDATE.replace("LANES", lanes))
    return judge(folder / "total_spec.py", folder / "kernels.py", examples=12)


@pytest.mark.slow
@pytest.mark.usefixtures("no_shrinking")
def test_a_candidate_whose_sums_depend_on_the_batch_is_refused_and_its_twin_accepted(
    tmp_path: Path,
) -> None:
    verdict = _judged(tmp_path, "(4 if x.shape[0] < 4 else 1)")
    (row,) = verdict.report.failures
    assert (row.check, row.code) == ("batch-invariance", "OPS-BATCH-INVARIANCE")
    verdict = _judged(tmp_path, "4")
    assert verdict.accepted
    assert "batch-invariance" in {row.check for row in verdict.report.rows}
