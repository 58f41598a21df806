"""Have the row `out` find wrong implementations of an out variant, and pass right ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import checks


def tripled(name: str, into: Callable[..., Tensor] | None = None) -> opsmith.Operator:
    @opsmith.op(f"out_row::{name}")
    def triple(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x * 3

    if into is not None:
        torch.library.impl(f"out_row::{name}.out", "CPU")(into)
    return triple


def row(operator: opsmith.Operator) -> checks.Row:
    return checks.run(operator, select=["out"], isolate=False, examples=6).rows[0]


def fitting(x: Tensor, out: Tensor) -> None:
    if out.shape != x.shape or out.dtype != x.dtype or 0 in out.stride():
        raise RuntimeError("argument 'out' does not fit")


def right(x: Tensor, *, out: Tensor) -> Tensor:
    fitting(x, out)
    return torch.mul(x, 3, out=out)


def adds_to_what_is_there(x: Tensor, *, out: Tensor) -> Tensor:
    fitting(x, out)
    return out.add_(x * 3)


def returns_before_it_fills(x: Tensor, *, out: Tensor) -> Tensor:
    fitting(x, out)
    out[1:] = x[1:] * 3
    return out


def returns_other_memory(x: Tensor, *, out: Tensor) -> Tensor:
    fitting(x, out)
    out.copy_(x * 3)
    return out.clone()


def forgets_where_memory_begins(x: Tensor, *, out: Tensor) -> Tensor:
    fitting(x, out)
    out.as_strided(x.shape, (1,), 0).copy_(x * 3)
    return out


def resizes(x: Tensor, *, out: Tensor) -> Tensor:
    return torch.mul(x, 3, out=out)


def casts(x: Tensor, *, out: Tensor) -> Tensor:
    if out.shape != x.shape:
        raise RuntimeError("argument 'out' does not fit")
    return out.copy_(x * 3)


@pytest.mark.parametrize(
    ("into", "said"),
    [
        (adds_to_what_is_there, "given memory: gave other bits than a call: out[0] is"),
        (returns_before_it_fills, "given memory: gave other bits than a call: out[0] is"),
        (returns_other_memory, "given memory: returned other tensors than it was given"),
        (
            forgets_where_memory_begins,
            "given memory in the middle of other memory: gave other bits than a call",
        ),
        (resizes, "took a dimension too many for 'out'"),
        (casts, "took torch.float64 in place of torch.float32 for 'out'"),
    ],
)
def test_a_wrong_out_variant_is_found(into: Callable[..., Tensor], said: str) -> None:
    found = row(tripled(into.__name__, into))
    assert (found.status, found.code) == ("failed", "OPS-OUT-VARIANT")
    assert found.message.startswith(said)


def test_a_right_one_passes_as_the_derived_one_does() -> None:
    assert row(tripled("right", right)).status == "passed"
    assert row(tripled("derived")).status == "passed"


def test_an_operator_without_one_is_not_applicable_with_the_reason() -> None:
    @opsmith.op("out_row::many")
    def many(x: Float[Tensor, "N"]) -> list[Float[Tensor, "N"]]:
        return [x + 1]

    found = row(many)
    assert found.status == "not applicable"
    assert found.message == "it returns a list, and nothing says of how many tensors"


def test_calls_that_differ_by_themselves_are_not_its_matter() -> None:
    calls = iter(range(1000))

    @opsmith.op("out_row::drifts")
    def drifts(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x * 3

    @drifts.register_kernel("cpu")
    def kernel(x: Tensor) -> Tensor:
        return x * 3 * (1 + next(calls) * 1e-6)

    assert row(drifts).status == "passed"
