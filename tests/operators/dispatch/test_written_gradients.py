"""Gradients through calls that write: of what is only read, and of what was there before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import DeclarationError, DifferentiationError, NonDifferentiable, checks


def _into(x: Float[Tensor, "N"], total: Float[Tensor, "N"], w: Float[Tensor, "N"]) -> Any:
    total.mul_(x)
    return total * total * w


def _declared(name: str, **options: Any) -> Any:
    def accumulate(
        x: Float[Tensor, "N"], total: Float[Tensor, "N"], w: Float[Tensor, "N"]
    ) -> Float[Tensor, "N"]:
        """Multiply `total` by `x`, and return its weighted squares."""
        return _into(x, total, w)

    return opsmith.op(f"written_gradients::{name}", mutates_args=("total",), **options)(accumulate)


BY_REFERENCE = _declared("by_reference", autograd="reference")
BY_HAND = _declared("by_hand")
BY_OPERATOR = _declared("by_operator")


def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
    x, total, w = inputs
    ctx.save_for_backward(x, total, w)


@BY_HAND.register_autograd(setup_context=setup_context)
def backward(ctx: Any, grad: Tensor, grad_total: Tensor) -> tuple[Tensor | None, ...]:
    x, total, w = ctx.saved_tensors  # the total after the call
    by_total = grad_total + 2 * total * w * grad
    return by_total * total / x, by_total * x, total**2 * grad


@opsmith.op("written_gradients::accumulate_backward")
def accumulate_backward(
    grad: Float[Tensor, "N"],
    grad_total: Float[Tensor, "N"],
    x: Float[Tensor, "N"],
    total: Float[Tensor, "N"],
    w: Float[Tensor, "N"],
) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"], Float[Tensor, "N"]]:
    by_total = grad_total + 2 * total * w * grad
    return by_total * total / x, by_total * x, total**2 * grad


BY_OPERATOR.register_backward(accumulate_backward, grads={"x": 0, "total": 1, "w": 2})
OPERATORS = [BY_REFERENCE, BY_HAND, BY_OPERATOR]
every_way = pytest.mark.parametrize("operator", OPERATORS, ids=lambda one: one.name)


def _functional(x: Tensor, total: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    after = total * x
    return after * after * w, after


def _in_place(operator: Any) -> Callable[..., tuple[Tensor, Tensor]]:
    def call(x: Tensor, total: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        total = total * 1
        return operator(x, total, w), total

    return call


def _gradients(
    call: Callable[..., tuple[Tensor, Tensor]], twice: bool = False, only: int | None = None
) -> Sequence[Tensor]:
    generator = torch.Generator().manual_seed(1)
    leaves = [
        (torch.rand(4, generator=generator, dtype=torch.float64) + 0.5).requires_grad_(
            only in (None, position)
        )
        for position in range(3)
    ]
    result, total = call(*leaves)
    loss = (result**2).sum() + (total**3).sum()
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    found = torch.autograd.grad(loss, wanted, create_graph=twice)
    if twice:
        found = torch.autograd.grad(sum((one**2).sum() for one in found), wanted)
    return found


@every_way
@pytest.mark.parametrize("only", [None, 0, 1, 2])
def test_gradients_reach_what_is_read_and_what_was_there(operator: Any, only: int | None) -> None:
    expected = _gradients(_functional, only=only)
    torch.testing.assert_close(_gradients(_in_place(operator), only=only), expected)


def test_the_gradient_of_the_reference_can_be_differentiated_again() -> None:
    expected = _gradients(_functional, twice=True)
    torch.testing.assert_close(_gradients(_in_place(BY_REFERENCE), twice=True), expected)


@every_way
def test_what_shares_memory_with_the_written_tensor_keeps_its_gradient(operator: Any) -> None:
    def in_place(x: Tensor, total: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        total = total * x
        return operator(total.view(-1), total, w), total

    def functional(x: Tensor, total: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        total = total * x
        return _functional(total, total, w)

    torch.testing.assert_close(_gradients(in_place), _gradients(functional))


@every_way
def test_compiled_code_has_the_same_gradients(operator: Any) -> None:
    call = torch.compile(_in_place(operator), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(_gradients(call), _gradients(_functional))


def test_compiled_code_that_writes_into_its_input_has_the_same_gradients() -> None:
    compiled = torch.compile(BY_HAND, fullgraph=True, backend="aot_eager")

    def call(x: Tensor, total: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        total = total * 1
        return compiled(x, total, w), total

    torch.testing.assert_close(_gradients(call), _gradients(_functional))


def test_what_was_saved_and_is_overwritten_later_is_found_out() -> None:
    x, w = torch.ones(2, requires_grad=True), torch.ones(2)
    total = torch.ones(2)
    result = BY_HAND(x, total, w)
    with torch.no_grad():
        total.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_a_list_and_an_optional_tensor_that_are_written_have_gradients() -> None:
    @opsmith.op(
        "written_gradients::decay", mutates_args=("xs", "last", "count"), autograd="reference"
    )
    def decay(
        xs: list[Float[Tensor, "..."]],
        by: Float[Tensor, ""],
        count: Annotated[Float[Tensor, ""], NonDifferentiable()],
        last: Float[Tensor, "..."] | None = None,
    ) -> None:
        for x in (*xs, *([] if last is None else [last])):
            x.mul_(by)
        count.add_(1)

    by = torch.tensor(3.0, requires_grad=True)
    for last in (None, torch.full((2,), 5.0)):
        by.grad, count = None, torch.zeros(())
        xs = [torch.ones(2), torch.full((3,), 2.0)]
        assert decay(xs, by, count, last) is None
        assert all(x.requires_grad for x in xs) and not count.requires_grad and count == 1
        total = sum(x.sum() for x in xs) + (0 if last is None else last.sum())
        total.backward()
        assert by.grad is not None and by.grad.item() == 8 + (0 if last is None else 10)


def test_what_autograd_cannot_record_is_refused_with_what_to_write() -> None:
    w = torch.ones(2, requires_grad=True)

    def refused(call: Callable[[], Any]) -> str:
        with pytest.raises(DifferentiationError) as caught:
            call()
        return str(caught.value)

    name = "written_gradients::by_reference"
    form = (
        "Declare by_reference(x, total, w) -> (out, total), which writes into nothing, and write "
        "afterwards: total.copy_(...)."
    )
    assert refused(lambda: BY_REFERENCE(torch.ones(2), torch.ones(2).requires_grad_(), w)) == (
        f"{name}: argument 'total' is written into, and is a leaf that requires a gradient. Pass a "
        "tensor that is computed from it (a clone), or call the operator under torch.no_grad()."
    )
    assert refused(lambda: BY_REFERENCE(torch.ones(2), torch.ones(4)[:2], w)) == (
        f"{name}: argument 'total' is written into, and is a view of another tensor. Autograd "
        f"records writes into views only for an operator that writes one argument and returns "
        f"nothing. Pass a tensor of its "
        f"own (a clone). Or: {form}"
    )
    in_func = torch.func.grad(lambda w: BY_REFERENCE(torch.ones(2), torch.ones(2), w).sum())
    assert refused(lambda: in_func(torch.ones(2))) == (
        f"{name}: writes into 'total', and torch.func differentiates no such operator. {form}"
    )
    bare = _declared("bare")
    assert refused(lambda: bare(torch.ones(2), torch.ones(2), w)) == (
        "written_gradients::bare: writes into 'total', and declares no gradient, but an argument "
        "requires one. Call it under torch.no_grad(), detach() its arguments, or declare its "
        'gradient (autograd="reference", register_backward, register_autograd).'
    )


def test_a_backward_that_leaves_out_the_gradient_of_what_is_written_is_refused() -> None:
    @opsmith.op("written_gradients::incomplete_backward")
    def incomplete(grad: Float[Tensor, "N"], x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return grad * x

    with pytest.raises(DeclarationError) as caught:
        _declared("incomplete").register_backward(incomplete, grads={"w": 0})
    assert str(caught.value).startswith(
        "written_gradients::incomplete: register_backward: "
        "written_gradients::incomplete_backward does not take 'grad_total', so that a gradient of "
        "the argument 'total' would be lost."
    )


@pytest.mark.slow
def test_the_rows_find_a_backward_that_loses_a_gradient_of_what_is_written() -> None:
    wrong = _declared("wrong")

    @wrong.register_autograd(setup_context=setup_context)
    def loses(ctx: Any, grad: Tensor, grad_total: Tensor) -> tuple[Tensor, ...]:
        x, total, w = ctx.saved_tensors
        by_total = 2 * total * w * grad  # without grad_total
        return by_total * total / x, by_total * x, total**2 * grad

    for row in ("gradient", "gradcheck"):
        settings = {"select": [row], "examples": 5, "isolate": False}
        assert not checks.run(wrong, **settings).ok
        for operator in OPERATORS:
            report = checks.run(operator, **settings)
            assert report.ok, report.explain()
