"""A tensor that PyTorch takes to no operator is named, whatever PyTorch says of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Float
from torch import Tensor
from torch._subclasses import FakeTensorMode

import opsmith
from opsmith import ArgumentError

X = torch.ones(2, 3)


@opsmith.op("test_unusable::plus", autograd="reference")
def plus(
    x: Float[Tensor, "N M"], y: Float[Tensor, "N M"], k: int = 1, t: str = ""
) -> Float[Tensor, "N M"]:
    """Has no kernel but the reference."""
    return x + k * y


@opsmith.op("test_unusable::add_to", mutates_args=("total",))
def add_to(x: Float[Tensor, "N M"], total: Float[Tensor, "N M"]) -> None:
    """Write into an argument."""
    total.add_(x)


class Declining(Tensor):
    """Declines every function of PyTorch."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented


class NoIndex:
    """Raises what no conversion is expected to raise."""

    def __index__(self) -> int:
        raise RuntimeError("no index")


def kept_by_vmap() -> Tensor:
    kept: list[Tensor] = []
    torch.vmap(lambda x: (kept.append(x), x)[1])(torch.ones(2, 2, 3))
    return kept[0]


def in_inference_mode() -> Tensor:
    with torch.inference_mode():
        return X.clone()


ENDED = (
    "'y' belongs to a transform of torch.func that has ended. Return it from the function that is "
    "transformed, in place of keeping it."
)
UNUSABLE: dict[str, tuple[Callable[[], Any], str]] = {
    "lazy": (
        torch.nn.parameter.UninitializedParameter,
        "'y' is a parameter without a shape. Call its lazy module once before this call.",
    ),
    "vmap": (kept_by_vmap, ENDED),
    "masked": (
        lambda: torch.masked.masked_tensor(X, X > 0),
        "'y' is a MaskedTensor, which does not implement this operator. Pass a plain tensor.",
    ),
    "declining": (
        lambda: X.as_subclass(Declining),
        "'y' is a Declining, which does not implement this operator. Pass a plain tensor.",
    ),
    "fake": (
        lambda: FakeTensorMode().from_tensor(X),
        "'y' is a FakeTensor, and other arguments are not. Pass tensors of one kind, or call the "
        "operator in the FakeTensorMode.",
    ),
}


@pytest.mark.parametrize(("make", "said"), UNUSABLE.values(), ids=UNUSABLE)
def test_a_tensor_that_no_operator_takes_is_named(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        plus(X, make())
    assert str(caught.value) == f"test_unusable::plus: argument {said}"


def test_a_parameter_without_a_shape_is_named_under_functionalize_too() -> None:
    with pytest.raises(ArgumentError, match="'x' is a parameter without a shape"):
        torch.func.functionalize(plus)(torch.nn.parameter.UninitializedParameter(), X)


def test_a_tensor_of_an_ended_transform_is_told_from_those_of_the_one_that_runs() -> None:
    old = kept_by_vmap()
    with pytest.raises(ArgumentError, match="'y' belongs to a transform of"):
        torch.func.vjp(lambda x: plus(x, old), X)
    assert torch.vmap(torch.func.grad(lambda x: plus(x, x).sum()))(X[None]).tolist()[0][0][0] == 2


def test_a_tensor_that_autograd_cannot_save_is_named() -> None:
    with pytest.raises(ArgumentError, match="'y' was made in inference mode, and autograd cannot"):
        plus(X.clone().requires_grad_(), in_inference_mode())
    assert plus(X, in_inference_mode()).tolist() == (X + 1).tolist()


def test_a_tensor_without_values_that_would_decide_sizes_is_named() -> None:
    @opsmith.op("test_unusable::positive", data_dependent=("K",))
    def positive(x: Float[Tensor, "N"]) -> Float[Tensor, "K"]:
        return x[x > 0]

    for x in (torch.ones(3, device="meta"), FakeTensorMode().from_tensor(torch.ones(3))):
        with pytest.raises(ArgumentError, match="'x' has no values, and the sizes of the results"):
            positive(x)


def test_a_tensor_whose_memory_was_freed_is_named() -> None:
    @opsmith.op("test_unusable::rows")
    def rows(x: Float[Tensor, "N M"], y: Float[Tensor, "N M"]) -> Float[Tensor, "N M"]:
        return x + y.as_strided(y.shape, y.stride())

    freed = X.clone()
    freed.untyped_storage().resize_(0)
    with pytest.raises(ArgumentError, match="'y' has a storage that was resized to less than the"):
        rows(X, freed)


def test_a_tensor_that_is_batched_where_a_number_is_expected_is_named() -> None:
    with pytest.raises(ArgumentError, match="'k' is a tensor, whose value"):
        torch.vmap(lambda k: plus(X, X, k))(torch.tensor([1, 2]))
    assert plus(X, X, torch.tensor(2)).tolist() == (3 * X).tolist()


def test_a_tensor_that_is_traced_where_a_number_is_expected_is_named() -> None:
    with (
        FakeTensorMode() as mode,
        pytest.raises(ArgumentError, match="'k' is a tensor, whose value"),
    ):
        plus(mode.from_tensor(X), mode.from_tensor(X), mode.from_tensor(torch.tensor(2)))


def test_what_cannot_be_written_is_named() -> None:
    with pytest.raises(
        ArgumentError, match="'total' is written into, which PyTorch functionalises"
    ):
        torch.func.functionalize(add_to)(X, X.clone())


@pytest.mark.parametrize(
    ("argument", "value", "said"),
    [
        ("k", NoIndex(), "'k' is of type NoIndex, expected int."),
        ("k", torch.ones((), device="meta"), "'k' is a tensor on meta, which has no value, exp"),
        ("k", torch.tensor(1j), "'k' is a complex tensor, expected int."),
        ("t", "\ud800", "'t' is '\\ud800', expected a str that UTF-8 can encode."),
    ],
)
def test_a_number_or_text_that_cannot_be_converted_is_named(
    argument: str, value: Any, said: str
) -> None:
    with pytest.raises(ArgumentError) as caught:
        plus(X, X, **{argument: value})
    assert str(caught.value).startswith(f"test_unusable::plus: argument {said}")


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("value", [Tensor, b"x", NotImplemented, NoIndex()])
def test_a_value_that_no_graph_can_contain_is_named_under_compile(value: Any) -> None:
    compiled = torch.compile(lambda *args, **kwargs: plus(*args, **kwargs), backend="eager")
    with pytest.raises(ArgumentError, match=r"argument 'y' is of type \w+, expected Float"):
        compiled(X, value)
    with pytest.raises(ArgumentError, match=r"argument 'k' is of type \w+, expected int"):
        compiled(X, X, k=value)
    with pytest.raises(ArgumentError, match=r"has no argument 'z'; there are x, y, k, t"):
        compiled(X, X, z=value)
    assert compiled(X, X, k=2).tolist() == (3 * X).tolist()


def test_a_number_of_numpys_is_the_same_under_compile() -> None:
    compiled = torch.compile(lambda k: plus(X, X, k), backend="eager")
    assert compiled(np.int64(2)).tolist() == plus(X, X, np.int64(2)).tolist()
    with pytest.raises(ArgumentError, match=r"'k' is of type \w+, expected int"):
        compiled(np.float32(1.5))


@pytest.mark.parametrize("k", [np.array([1, 2]), np.array([2.5])])
def test_an_array_where_an_int_is_expected_is_named_under_compile(k: Any) -> None:
    compiled = torch.compile(lambda k: plus(X, X, k), backend="aot_eager")
    with pytest.raises(ArgumentError, match=r"'k' is of type ndarray, expected int"):
        compiled(k)


def test_a_list_where_an_int_is_expected_is_named_under_compile() -> None:
    # A graph may contain the list, so PyTorch's own words refuse it.
    compiled = torch.compile(lambda k: plus(X, X, k), backend="aot_eager")
    with pytest.raises(RuntimeError, match=r"plus\(\) Expected .*int.* for argument .*k"):
        compiled([1.5])


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_a_nested_tensor_is_named_under_compile(layout: torch.layout) -> None:
    nested = torch.nested.nested_tensor([torch.ones(1, 2), torch.ones(2, 2)], layout=layout)
    compiled = torch.compile(lambda x: plus(x, X), backend="aot_eager")
    with pytest.raises(ArgumentError, match="'x' is a tensor of layout nested, expected"):
        compiled(nested)


def test_a_nested_tensor_after_other_refused_calls_ends_no_process_under_compile() -> None:
    compiled = torch.compile(lambda *args: plus(*args), backend="aot_eager")
    nested = torch.nested.nested_tensor([torch.ones(1, 2), torch.ones(2, 2)])
    for k in (b"x", object(), np.array([1, 2])):
        with pytest.raises(ArgumentError, match="'k' is of type"):
            compiled(X, X, k)
        for given in ((nested, X, 1), (X, nested, k)):
            with pytest.raises(ArgumentError, match="layout nested, expected"):
                compiled(*given)


def test_one_graph_with_a_value_that_it_cannot_contain_says_which_argument() -> None:
    compiled = torch.compile(lambda x: plus(x, x, k=b"x"), backend="eager", fullgraph=True)
    with pytest.raises(Exception, match=r"argument 'k' is of type bytes, which is no number"):
        compiled(X)


def test_a_tensor_of_an_ended_vmap_is_named_under_compile() -> None:
    compiled = torch.compile(lambda *args: plus(*args), backend="eager")
    with pytest.raises(RuntimeError, match="'y' belongs to a transform of torch"):
        compiled(X, kept_by_vmap())


def test_a_nested_tensor_in_a_list_is_named_under_compile_and_ends_no_process() -> None:
    @opsmith.op("test_unusable::total")
    def total(xs: list[Float[Tensor, "N M"]]) -> Float[Tensor, "N M"]:
        return torch.stack(xs).sum(0)

    nested = torch.nested.nested_tensor([torch.ones(1, 2), torch.ones(2, 2)])
    compiled = torch.compile(lambda xs: total(xs), backend="aot_eager")
    with pytest.raises(ArgumentError, match=r"'xs\[1\]' is a tensor of layout nested, expected"):
        compiled([X, nested])
