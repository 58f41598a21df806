"""Written arguments that are conjugated or negated only when they are read."""

from __future__ import annotations

import pytest
import torch
from jaxtyping import Inexact
from torch import Tensor

import opsmith
from opsmith import ArgumentError


@opsmith.op("lazy_bits::bump", mutates_args=("y",))
def bump(y: Inexact[Tensor, "N"], x: Inexact[Tensor, "N"]) -> None:
    y.add_(x)


@opsmith.op("lazy_bits::bumps", mutates_args=("ys", "z"))
def bumps(
    ys: list[Inexact[Tensor, "?N"]],
    xs: list[Inexact[Tensor, "?N"]],
    z: Inexact[Tensor, "M"] | None = None,
) -> Inexact[Tensor, ""]:
    for y, x in zip(ys, xs, strict=True):
        y.add_(x)
    if z is not None:
        z.mul_(2)
    return sum((y.sum() for y in ys), ys[0].new_zeros(()))


def test_what_is_written_into_a_view_that_is_negated_or_conjugated_arrives() -> None:
    base = torch.tensor([1 + 1j, 2])
    x = torch.tensor([1j, 1])
    bump(base.conj(), x)
    assert base.tolist() == [1, 3]
    bump(base.conj().imag, torch.ones(2))
    assert base.tolist() == [1 - 1j, 3 - 1j]
    bump(torch._neg_view(base.conj()), x)
    assert base.tolist() == [1 + 0j, 2 - 1j]
    view, before = base.conj(), base._version
    bump(view, x)
    assert view._version == base._version > before


def test_a_tensor_may_be_read_beside_its_own_view_that_is_written() -> None:
    base = torch.tensor([1 + 1j, 2])
    bump(base.conj(), base)
    assert base.tolist() == [2, 4]
    bump(base, base.conj())
    assert base.tolist() == [4, 8]


def test_lists_and_optional_arguments_are_written_through_their_views() -> None:
    first, second, third = torch.tensor([1 + 1j, 2]), torch.tensor([3j]), torch.tensor([1j, 1])
    total = bumps([first.conj(), second], [torch.tensor([1j, 0]), second.conj()], third.conj())
    assert (first.tolist(), second.tolist(), third.tolist()) == ([1, 2], [0], [2j, 2])
    assert total.item() == 3


def test_views_that_share_memory_are_refused_as_other_written_tensors_are() -> None:
    base = torch.tensor([1 + 1j, 2])
    with pytest.raises(ArgumentError, match=r"'ys\[0\]' and 'ys\[1\]' are both written, but share"):
        bumps([base.conj(), base], [base * 1, base * 1])
    with pytest.raises(ArgumentError, match="'y' is written, but its elements share memory"):
        bump(base[:1].expand(2).conj(), base)
    with pytest.raises(ArgumentError, match="argument 'x' does not fit"):
        bump(base.conj(), base[:1])
    assert base.tolist() == [1 + 1j, 2]
