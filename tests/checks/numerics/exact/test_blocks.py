"""A kernel that is wrong behind its first block is found: each dimension is once that long."""

import re
from pathlib import Path

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import checks
from opsmith.sources.importing import import_all

TODAY = Path(__file__).parents[4] / "examples" / "todays_operators"


@opsmith.op("exact_tests::blocks")
def blocks(x: Float[Tensor, "N C"]) -> Float[Tensor, "N"]:
    """Sum each row."""
    return x.sum(1)


blocks.register_kernel("cpu", source="blocks.cpp")


@pytest.mark.slow
def test_a_fault_behind_the_first_block_is_found() -> None:
    report = checks.run(blocks, select=["exact"])
    (failure,) = report.failures
    assert failure.check == "exact"
    assert re.search(r"smallest case: x: float32 \(\d, 259\)", failure.explain())
    assert not checks.run(blocks, select=["reference"]).failures
    assert torch.equal(blocks(torch.ones(1, 256)), torch.full((1,), 256.0))


@pytest.mark.long  # test_determinism.py states this limit of its own row
def test_dimensions_that_the_reference_loops_over_keep_to_small_sizes() -> None:
    (soft_dtw, _) = import_all([str(TODAY / "soft_dtw.py")])
    (row,) = (one for one in checks.run(soft_dtw, select=["exact"]).rows if one.check == "exact")
    assert row.status == "passed"
    assert "sizes up to 35 of N, M, as the reference loops" in row.notes
