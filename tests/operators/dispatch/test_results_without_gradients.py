"""Results that are declared to have no gradient, and backwards that must not forget one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
import torch
from jaxtyping import Float, Float64
from torch import Tensor

import opsmith
from opsmith import DeclarationError, NonDifferentiable, checks

Statistics = Annotated[Float[Tensor, "N"], NonDifferentiable()]


def normalised(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows without their means, and the means."""
    mean = x.mean(1)
    return x - mean[:, None], mean


def declare(name: str, *, marked: bool, **options: Any) -> opsmith.Operator:
    """Return an operator whose second result is saved statistics."""
    if marked:

        def operator(x: Float[Tensor, "N C"]) -> tuple[Float[Tensor, "N C"], Statistics]:
            return normalised(x)

        return opsmith.op(f"without_gradients::{name}", operator, **options)

    def plain(x: Float[Tensor, "N C"]) -> tuple[Float[Tensor, "N C"], Float[Tensor, "N"]]:
        return normalised(x)

    return opsmith.op(f"without_gradients::{name}", plain, **options)


@opsmith.op("without_gradients::back")
def back(grad_out0: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    """Return the gradient through the rows alone."""
    return grad_out0 - grad_out0.mean(1, keepdim=True)


@opsmith.op("without_gradients::back_of_both")
def back_of_both(
    grad_out0: Float[Tensor, "N C"], grad_out1: Float[Tensor, "N"]
) -> Float[Tensor, "N C"]:
    """Return the gradient through both results."""
    return back(grad_out0) + grad_out1[:, None] / grad_out0.shape[1]


def test_a_declared_backward_takes_the_gradient_of_each_result() -> None:
    operator = declare("forgetful", marked=False)
    with pytest.raises(DeclarationError) as caught:
        operator.register_backward(back, grads={"x": 0})
    assert str(caught.value) == (
        "without_gradients::forgetful: register_backward: without_gradients::back does not take "
        "'grad_out1', so that a gradient of the result 'out1' would be lost. Take it, or declare "
        'that there is none: Annotated[Float[Tensor, "N"], NonDifferentiable()].'
    )
    operator.register_backward(back_of_both, grads={"x": 0})
    x = torch.ones(2, 3, requires_grad=True)
    operator(x)[1].sum().backward()
    assert x.grad is not None and torch.allclose(x.grad, torch.tensor(1 / 3))
    with pytest.raises(DeclarationError, match="takes 'grad_out1', and the result 'out1' is decl"):
        declare("greedy", marked=True).register_backward(back_of_both, grads={"x": 0})


def _hand(ctx: Any, grad: Tensor, _: Any) -> Tensor:
    return back(grad)


def _registered(how: str) -> opsmith.Operator:
    name = how.replace(" ", "_")
    if how == "reference":
        return declare(name, marked=True, autograd="reference")
    operator = declare(name, marked=True)
    if how == "by hand":
        operator.register_autograd(_hand)
        return operator
    operator.register_backward(back, grads={"x": 0})
    if how == "recorded":
        operator._registration.native_autograd(operator)
    return operator


@pytest.mark.parametrize(
    ("backward", "said"),
    [
        (lambda ctx, grad: grad, "too many positional arguments"),
        (lambda ctx, one, other, third: one, "missing a required argument: 'third'"),
    ],
)
def test_a_backward_that_takes_another_number_of_gradients_is_refused_where_it_is_written(
    backward: Any, said: str
) -> None:
    operator = declare("counted_grads", marked=False)
    with pytest.raises(DeclarationError) as caught:
        operator.register_autograd(backward)
    start = f"{operator.name}: register_autograd: {__file__}:{backward.__code__.co_firstlineno}: "
    assert str(caught.value) == (
        f"{start}the backward is called with the context and a gradient for each of 2 results "
        f"(out0, out1), but it does not take these: {said}. "
        "Write backward(ctx, grad_out0, grad_out1)."
    )
    operator.register_autograd(lambda ctx, *grads: grads[0])


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("how", ["reference", "by hand", "declared", "recorded"])
def test_a_result_without_a_gradient_requires_none(how: str) -> None:
    operator = _registered(how)
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    rows, mean = operator(x)
    assert rows.requires_grad and not mean.requires_grad
    incoming = torch.randn(2, 3, dtype=torch.float64)
    rows.backward(incoming)
    torch.testing.assert_close(x.grad, back(incoming))
    with pytest.raises(RuntimeError, match="does not require grad"):
        operator(x)[1].sum().backward()
    compiled = torch.compile(operator, backend="aot_eager", fullgraph=True)
    assert [result.requires_grad for result in compiled(x)] == [True, False]
    if how == "reference":
        along = torch.func.jvp(operator, (x.detach(),), (incoming,))[1]
        torch.testing.assert_close(along[0], back(incoming))
        assert not along[1].any()


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("how", ["reference", "by hand", "declared"])
def test_the_checks_of_gradients_leave_such_a_result_out(how: str) -> None:
    rows = ["gradient", "gradcheck", "double-backward", "compile"]
    report = checks.run(_registered(how), select=rows, isolate=False, examples=4)
    assert {row.check for row in report.rows if row.status == "passed"} >= {*rows[:2]}
    assert report.ok, report.explain()


def test_a_wrong_declared_backward_is_named_where_the_user_wrote_it() -> None:
    @opsmith.op("without_gradients::double")
    def double(x: Float64[Tensor, "N"]) -> Float64[Tensor, "N"]:
        return 2 * x

    @opsmith.op("without_gradients::double_backward")
    def double_backward(grad: Float64[Tensor, "N"]) -> Float64[Tensor, "N"]:
        return 3 * grad

    double.register_backward(double_backward, grads={"x": 0})
    (row,) = checks.run(double, select=["gradient"], isolate=False, examples=2).rows
    assert row.status == "failed"
    assert row.blame.startswith(f"backward: {Path(__file__)}:")
