"""Which arguments a kernel in Python gets copies of, and what it may return of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from jaxtyping import Complex64, Float32
from torch import Tensor

import opsmith
from opsmith import ArgumentError
from opsmith.operators.core.overlap import keep_apart


@opsmith.op("shared_memory::poured", mutates_args=("out", "more"))
def poured(
    x: Float32[Tensor, "N"],
    xs: list[Float32[Tensor, "N"]],
    out: Float32[Tensor, "M"],
    more: Float32[Tensor, "K"] | None = None,
) -> None:
    """Nothing is computed: `keep_apart` is asked directly."""


def apart(**given: Any) -> Any:
    arguments = {"x": torch.ones(2), "xs": [], "out": torch.ones(3), "more": None, **given}
    return arguments, keep_apart(poured.signature)(arguments)


def test_only_what_the_call_writes_into_is_copied_before_it_is_read() -> None:
    memory = torch.arange(8.0)
    given, kept = apart(x=memory[:3], xs=[memory[6:], memory[2:4]], out=memory[3:6])
    assert kept["x"] is given["x"]  # beside it, to the last byte
    assert kept["xs"][0] is given["xs"][0]
    assert kept["xs"][1] is not given["xs"][1] and torch.equal(kept["xs"][1], memory[2:4])
    assert kept["out"] is given["out"]

    strided = memory[:7].as_strided((2,), (3,))  # 0 and 3: it ends where out begins
    given, kept = apart(x=strided, out=memory[4:])
    assert kept["x"] is given["x"]
    given, kept = apart(x=strided, out=memory[1:2])  # between its elements, for all that is known
    assert kept["x"] is not given["x"]

    given, kept = apart(x=memory[3:3], out=memory)
    assert kept["x"] is given["x"]  # it has no elements


def test_two_that_are_written_may_lie_between_each_other_and_not_share_elements() -> None:
    memory = torch.arange(8.0)
    for out, more in (
        (memory[::2], memory[1::2]),
        (memory[1:2], memory[::2]),
        (memory[:4], memory[4:]),
    ):
        apart(out=out, more=more)
    for out, more in ((memory[:4], memory[3:]), (memory[::2], memory[::2])):
        with pytest.raises(ArgumentError) as caught:
            apart(out=out, more=more)
        assert str(caught.value) == (
            "shared_memory::poured: arguments 'out' and 'more' are both written, but share "
            "memory. Pass a clone."
        )


def test_a_dimension_of_one_that_was_expanded_may_be_written() -> None:
    @opsmith.op("shared_memory::zeroed", mutates_args=("out",))
    def zeroed(out: Float32[Tensor, "N M"]) -> None:
        out.zero_()

    out = torch.ones(3).expand(1, 3)
    assert 0 in out.stride() or out.stride(0) >= 0
    out = torch.ones(3).as_strided((1, 3), (0, 1))
    zeroed(out)
    assert out.tolist() == [[0, 0, 0]]
    zeroed(torch.ones(0, 1).expand(0, 3))
    with pytest.raises(ArgumentError, match=r"dimension 0 was expanded to 2\. Pass a clone\."):
        zeroed(torch.ones(3).expand(2, 3))


def test_results_that_are_conjugated_when_they_are_read_are_conjugated_in_memory() -> None:
    @opsmith.op("shared_memory::conjugated")
    def conjugated(
        x: Complex64[Tensor, "N"],
    ) -> tuple[Complex64[Tensor, "N"], Float32[Tensor, "N"]]:
        return x.clone().conj(), x.clone().conj().imag

    x = torch.tensor([1 + 2j])
    for returned in (tuple, list):
        conjugated.register_kernel("cpu", lambda x, made=returned: made(conjugated.reference(x)))
        one, other = conjugated(x)
        assert not one.is_conj() and not other.is_neg()
        assert (one.tolist(), other.tolist()) == ([1 - 2j], [-2.0])
