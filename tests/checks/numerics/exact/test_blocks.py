"""A kernel that is wrong behind its first block is found: each dimension is once that long."""

import re

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import checks
from opsmith.checks.catalogue import exact


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


@pytest.mark.slow
def test_a_row_without_time_for_larger_sizes_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "_SLOW", 0.0)
    (row,) = (
        row
        for row in checks.run(blocks, select=["exact"], isolate=False).rows
        if row.check == "exact"
    )
    assert row.status == "passed"
    assert row.notes[-1].endswith("; sizes are small, as the reference takes long for larger sizes")
