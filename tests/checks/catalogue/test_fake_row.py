"""The row fake runs fake kernels as traces do, also those that call PyTorch's own operators."""

from __future__ import annotations

from typing import Annotated

import pytest
import torch
from jaxtyping import Complex64, Float, Float32
from torch import Tensor

import opsmith
from opsmith import Between, checks


@opsmith.op("fake_row::waves")
def waves(
    length: Float32[Tensor, "N C"], angle: Float32[Tensor, "N C"]
) -> Complex64[Tensor, "N C"]:
    return torch.polar(length, angle)


# Outside of a trace, PyTorch's own fake kernel turns both sizes into numbers.
waves.register_fake(waves.reference)


@opsmith.op("fake_row::added")
def added(
    x: Float[Tensor, "N"], a: Float[Tensor, "M C L"], b: Float[Tensor, "M L N"]
) -> Float[Tensor, "C N"]:
    return torch.addbmm(x, a, b)


# Outside of a trace, PyTorch's own fake kernel raises for a bias that it expands.
added.register_fake(added.reference)


@opsmith.op("fake_row::joined")
def joined(
    x: Float[Tensor, "N C"], y: Float[Tensor, "N M"], weight: Float[Tensor, "K C M"]
) -> Float[Tensor, "N K"]:
    return torch.nn.functional.bilinear(x, y, weight)


# In a trace too, PyTorch loops over the first size of the weight.
joined.register_fake(joined.reference)


def _sums(x: Tensor, width: int, out: Tensor) -> Tensor:
    pieces = x.shape[0] - width + 1
    return out if pieces == 1 else x.new_empty(pieces)


@opsmith.op("fake_row::windows")
def windows(
    x: Float[Tensor, "N"], width: Annotated[int, Between("N-1", "N")]
) -> Float[Tensor, "N-{width}+1"]:
    return x.unfold(0, width, 1).sum(1)


# A size from which a size of 1 follows is fixed in a trace: another one for each width.
windows.register_fake(lambda x, width: _sums(x, width, x.new_empty(1)))


def _row(operator: opsmith.Operator) -> checks.Row:
    (row,) = checks.run(operator, select=["fake"], examples=8, isolate=False).rows
    return row


@pytest.mark.parametrize("operator", [waves, added, windows], ids=lambda one: one.name)
def test_a_fake_kernel_that_traces_with_symbolic_sizes_passes(operator: opsmith.Operator) -> None:
    assert (row := _row(operator)).status == "passed", row.explain()


def test_a_fake_kernel_whose_trace_fixes_a_size_is_found() -> None:
    row = _row(joined)
    assert (row.status, row.code) == ("failed", "OPS-FAKE-FIXED")
    assert "fixes dimension 0 of 'weight' to a number" in row.explain()
