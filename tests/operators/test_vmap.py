"""vmap gives what a loop gives, with one call where the declaration allows it."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import Float, Int64
from torch import Tensor

import opsmith
from opsmith import Index, OpsmithError


@opsmith.op("test_vmap::gather", parallel_dims=("C",))
def gather(
    x: Float[Tensor, "N C"],
    w: Float[Tensor, "C"],
    index: Annotated[Int64[Tensor, "P"], Index("N")],
) -> tuple[Float[Tensor, "P C"], Float[Tensor, "C P"]]:
    """Rows of `x`, weighted; each channel by itself."""
    rows = x[index] * w
    return rows, rows.t().contiguous()


@opsmith.op("test_vmap::add", parallel_dims=("*s",))
def add(x: Float[Tensor, "*s"], y: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """Each element by itself."""
    return x + y


def _loop(operator: Any, in_dims: Any, *args: Any) -> Any:
    size = next(a.shape[d] for a, d in zip(args, in_dims, strict=True) if d is not None)
    calls = [
        operator(*[a if d is None else a.select(d, i) for a, d in zip(args, in_dims, strict=True)])
        for i in range(size)
    ]
    if isinstance(calls[0], tuple):
        return tuple(torch.stack(each) for each in zip(*calls, strict=True))
    return torch.stack(calls)


X, W = torch.randn(5, 4), torch.randn(4)
INDEX = torch.tensor([0, 4, 4, 1, 2, 3])


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("where", [0, 1, 2, -1])
@pytest.mark.parametrize("both", [False, True])
def test_a_parallel_dimension_takes_the_batch_in_one_call(
    batch: int, where: int, both: bool
) -> None:
    x = torch.randn(batch, 5, 4).movedim(0, where)
    args = (x, torch.randn(batch, 4) if both else W, INDEX)
    in_dims = (where, 0 if both else None, None)
    before = gather.kernels["reference"].calls
    batched = torch.vmap(gather, in_dims=in_dims)(*args)
    assert gather.kernels["reference"].calls == before + 1
    torch.testing.assert_close(batched, _loop(gather, in_dims, *args))


def test_a_batch_outside_the_parallel_dimension_is_looped_over() -> None:
    args = (X, W, torch.stack([INDEX, INDEX.flip(0)]))
    before = gather.kernels["reference"].calls
    batched = torch.vmap(gather, in_dims=(None, None, 0))(*args)
    assert gather.kernels["reference"].calls == before + 2
    torch.testing.assert_close(batched, _loop(gather, (None, None, 0), *args))


@given(
    st.integers(1, 3), st.integers(0, 2), st.sampled_from([(0, 0), (1, 0), (None, 1), (0, None)])
)
def test_elementwise_operators_take_any_batch(batch: int, size: int, in_dims: Any) -> None:
    def tensor(dim: int | None) -> Tensor:
        x = torch.randn(batch, size, 2)
        return x[0] if dim is None else x.movedim(0, dim)

    args = tuple(tensor(dim) for dim in in_dims)
    torch.testing.assert_close(torch.vmap(add, in_dims=in_dims)(*args), _loop(add, in_dims, *args))


def test_nested_and_empty_batches() -> None:
    x = torch.randn(2, 3, 4)
    assert torch.equal(torch.vmap(torch.vmap(add))(x, x), x + x)
    assert torch.vmap(gather, in_dims=(0, None, None))(torch.empty(0, 5, 4), W, INDEX)[1].shape == (
        0,
        4,
        6,
    )


def test_vmap_of_a_mutating_operator_is_refused() -> None:
    @opsmith.op("test_vmap::fill", mutates_args=("x",))
    def fill(x: Float[Tensor, "N"]) -> None:
        x.fill_(1)

    with pytest.raises(OpsmithError, match="test_vmap::fill: mutates 'x', and vmap of a mutating"):
        torch.vmap(fill)(torch.ones(2, 3))


def test_a_rule_written_by_hand_goes_first() -> None:
    @opsmith.op("test_vmap::hand", parallel_dims=("*s",))
    def hand(x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return x.clone()

    @hand.register_vmap
    def _(info: Any, in_dims: Any, x: Tensor) -> Any:
        return x + info.batch_size, in_dims[0]

    assert torch.vmap(hand)(torch.zeros(3, 1)).tolist() == [[3], [3], [3]]
