"""vmap gives what a loop gives, with one call where the declaration allows it."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
import torch
from hypothesis import given, strategies as st
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


@opsmith.op("test_vmap::halves")
def halves(x: Float[Tensor, "N"], many: list[Float[Tensor, "N"]], k: int = 2) -> list[Tensor]:
    """`x` and each of `many`, times `k`."""
    return [x * k, *(tensor * k for tensor in many)]


@halves.register_fake
def _(x: Tensor, many: list[Tensor], k: int = 2) -> list[Tensor]:
    return [torch.empty_like(x), *(torch.empty_like(tensor) for tensor in many)]


@opsmith.op("test_vmap::split_sum")
def split_sum(x: Float[Tensor, "N"]) -> tuple[list[Tensor], Tensor]:
    """The elements of `x`, and their sum."""
    return [part.clone() for part in x.split(1)], x.sum()


@split_sum.register_fake
def _(x: Tensor) -> tuple[list[Tensor], Tensor]:
    return [x.new_empty(1) for _ in range(x.shape[0])], x.new_empty(())


def test_a_result_that_is_a_list_is_stacked_tensor_by_tensor() -> None:
    x, y, z = torch.randn(3, 2), torch.randn(2), torch.randn(2, 3)
    batched = torch.vmap(halves, in_dims=(0, [None, 1]))(x, [y, z])
    assert isinstance(batched, list)
    expected = [x * 2, (y * 2).expand(3, 2), z.t() * 2]
    assert [torch.equal(a, b) for a, b in zip(batched, expected, strict=True)] == [True] * 3
    nested = torch.vmap(torch.vmap(halves, in_dims=(0, None)), in_dims=(0, None))
    deep = torch.randn(4, 3, 2)
    assert torch.equal(nested(deep, [y])[0], deep * 2)


def test_a_list_among_several_results_is_stacked() -> None:
    x = torch.randn(3, 2)
    parts, total = torch.vmap(split_sum)(x)
    assert torch.equal(torch.cat(parts, 1), x)
    assert torch.equal(total, x.sum(1))


def test_no_samples_of_a_list_of_tensors() -> None:
    @opsmith.op("test_vmap::total")
    def total(many: list[Float[Tensor, "N"]], x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return sum(many, x)

    many = [torch.ones(0, 2), torch.ones(2)]
    assert torch.vmap(total, in_dims=([0, None], 0))(many, torch.ones(0, 2)).shape == (0, 2)


def test_results_that_cannot_be_stacked_are_named() -> None:
    @opsmith.op("test_vmap::positive", data_dependent=("M",))
    def positive(x: Float[Tensor, "N"]) -> Float[Tensor, "M"]:
        return x[x > 0]

    @opsmith.op("test_vmap::ones")
    def ones(x: Float[Tensor, "N"]) -> list[Tensor]:
        return [x.clone() for _ in range(int(x.sum()))]

    with pytest.raises(OpsmithError) as caught:
        torch.vmap(positive)(torch.tensor([[1.0, 1.0], [1.0, -1.0]]))
    assert str(caught.value) == (
        "test_vmap::positive: vmap cannot stack the result 'out': it is of shape (2,) for sample "
        "0, and of shape (1,) for sample 1. Call the operator once per sample."
    )
    with pytest.raises(OpsmithError, match=r"a list of 1 \(\(2,\)\) for sample 0, and a list of 2"):
        torch.vmap(ones)(torch.tensor([[1.0, 0.0], [1.0, 1.0]]))


def test_a_dimension_that_bounds_values_takes_no_batch() -> None:
    @opsmith.op("test_vmap::marked", parallel_dims=("C",))
    def marked(
        x: Float[Tensor, "C"], at: Annotated[Int64[Tensor, "P"], Index("C")]
    ) -> Float[Tensor, "C"]:
        return x * at.numel()

    x = torch.randn(3, 4)
    assert torch.equal(torch.vmap(marked, in_dims=(0, None))(x, torch.tensor([3])), x)
    with pytest.raises(opsmith.ArgumentError, match=r"has value 4 at index 0, expected 0 <= value"):
        torch.vmap(marked, in_dims=(0, None))(x, torch.tensor([4]))


def test_a_dimension_that_a_size_is_computed_from_takes_no_batch() -> None:
    @opsmith.op("test_vmap::pairs", parallel_dims=("C",))
    def pairs(x: Float[Tensor, "C"], y: Float[Tensor, "2*C"]) -> Float[Tensor, "C"]:
        return x + y.unflatten(0, (-1, 2)).sum(1)

    x, y = torch.randn(3, 4), torch.randn(8)
    expected = _loop(pairs, (0, None), x, y)
    assert torch.equal(torch.vmap(pairs, in_dims=(0, None))(x, y), expected)


def test_a_dimension_of_tensors_in_a_list_takes_no_batch() -> None:
    @opsmith.op("test_vmap::plus_all", parallel_dims=("C",))
    def plus_all(x: Float[Tensor, "C"], many: list[Float[Tensor, "C"]]) -> Float[Tensor, "C"]:
        return sum(many, x)

    x, y = torch.randn(3, 4), torch.randn(4)
    assert torch.equal(torch.vmap(plus_all, in_dims=(0, None))(x, [y, y]), x + y + y)


def test_a_dimension_behind_any_number_of_others_takes_no_batch() -> None:
    @opsmith.op("test_vmap::scale_last", parallel_dims=("C",))
    def scale_last(x: Float[Tensor, "*s C"], w: Float[Tensor, "C"]) -> Float[Tensor, "*s C"]:
        return x * w

    x, w = torch.randn(3, 2, 5, 4), torch.randn(3, 4)
    assert torch.equal(torch.vmap(scale_last)(x, w), x * w[:, None, None])
    assert torch.equal(torch.vmap(scale_last, in_dims=(0, None))(x, w[0]), x * w[0])
