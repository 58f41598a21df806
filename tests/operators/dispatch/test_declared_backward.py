"""A backward that is an operator is declared, and nothing of it is written twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import pytest
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

import opsmith
from opsmith import NonDifferentiable, checks


@opsmith.op("declared_backward::scaled_cube", parallel_dims=("N",))
def scaled_cube(
    x: Float[Tensor, "N C"],
    weight: Float[Tensor, "C"],
    rows: Int64[Tensor, "N"],
    factor: float = 2.0,
    *,
    shift: int = 0,
) -> tuple[Float[Tensor, "N C"], Float[Tensor, "N"]]:
    return factor * weight * x**3, (x + shift).sum(1)


@opsmith.op("declared_backward::scaled_cube_backward")
def scaled_cube_backward(
    grad_out0: Float[Tensor, "N C"],
    grad_out1: Float[Tensor, "N"],
    x: Float[Tensor, "N C"],
    weight: Float[Tensor, "C"],
    factor: float,
    more: int = 3,
) -> tuple[Float[Tensor, "N C"], Float[Tensor, "C"]]:
    return (
        more * factor * weight * x**2 * grad_out0 + grad_out1[:, None],
        (factor * x**3 * grad_out0).sum(0),
    )


scaled_cube.register_backward(
    scaled_cube_backward, saves=("x", "weight", "factor"), grads={"x": 0, "weight": "out1"}
)


@opsmith.op("declared_backward::exponential")
def exponential(
    xs: Annotated[list[Float[Tensor, "N"]], NonDifferentiable()], scale: Float[Tensor, "N"] | None
) -> Float[Tensor, "N"]:
    out = sum(xs[1:], xs[0]).exp()
    return out if scale is None else out * scale


@opsmith.op("declared_backward::exponential_backward")
def exponential_backward(
    grad: Float[Tensor, "N"], result: Float[Tensor, "N"], scale: Float[Tensor, "N"] | None
) -> Float[Tensor, "N"]:
    return grad * result if scale is None else grad * result / scale


def arguments(**changes) -> dict:
    values = {
        "x": torch.randn(4, 3, requires_grad=True),
        "weight": torch.randn(3, requires_grad=True),
        "rows": torch.zeros(4, dtype=torch.int64),
        "factor": 1.5,
        "shift": 2,
    }
    return {**values, **changes}


def gradients(function, values) -> list[Tensor | None]:
    one, other = function(**values)
    leaves = [values["x"], values["weight"]]
    return list(torch.autograd.grad(one.sin().sum() + other.cos().sum(), leaves))


def test_gradients_are_those_of_the_reference() -> None:
    values = arguments()
    torch.testing.assert_close(
        gradients(scaled_cube, values), gradients(scaled_cube.reference, values)
    )
    # Only one of two results is used: the other's gradient is zero.
    one, _ = scaled_cube(**values)
    right, _ = scaled_cube.reference(**values)
    found = torch.autograd.grad(one.sum(), values["x"])
    torch.testing.assert_close(found, torch.autograd.grad(right.sum(), values["x"]))


@pytest.mark.long
def test_the_checks_take_it_like_one_by_hand() -> None:
    report = checks.run(scaled_cube, select=["gradient", "gradcheck"], examples=10)
    assert not report.failures, [row.explain() for row in report.failures]
    assert [row.status for row in report.rows] == ["passed", "passed"]


@pytest.mark.parametrize("transform", ["compile", "vjp", "vmap"])
def test_it_works_in_transforms(transform: str) -> None:
    values = arguments()
    x, weight = values["x"].detach(), values["weight"].detach()

    def loss(function, x: Tensor) -> Tensor:
        one, other = function(x, weight, values["rows"], 1.5, shift=2)
        return one.sum() + other.sin().sum()

    right = torch.func.grad(lambda x: loss(scaled_cube.reference, x))(x)
    if transform == "compile":
        given = x.clone().requires_grad_()
        compiled = torch.compile(
            lambda x: loss(scaled_cube, x), fullgraph=True, backend="aot_eager"
        )
        compiled(given).backward()
        found = given.grad
    elif transform == "vjp":
        found = torch.func.vjp(lambda x: loss(scaled_cube, x), x)[1](torch.tensor(1.0))[0]
    else:
        stacked = torch.stack([x, x])
        found = torch.func.vmap(torch.func.grad(lambda x: loss(scaled_cube, x)))(stacked)[1]
    torch.testing.assert_close(found, right)


@pytest.mark.parametrize("has_scale", [True, False])
def test_results_are_saved_too_and_what_is_absent_stays_absent(has_scale: bool) -> None:
    exponential.register_backward(exponential_backward, grads={"scale": 0})
    scale = torch.rand(3) + 1 if has_scale else None
    if scale is not None:
        scale.requires_grad_()
        out = exponential([torch.ones(3), torch.ones(3)], scale)
        (found,) = torch.autograd.grad(out.sum(), scale)
        torch.testing.assert_close(found, (out / scale).detach())
    else:
        assert not exponential([torch.ones(3)], None).requires_grad


def refused(register) -> str:
    with pytest.raises(opsmith.DeclarationError) as caught:
        register()
    return str(caught.value).removeprefix("declared_backward::scaled_cube: register_backward")


def other(name: str, function) -> opsmith.Operator:
    return opsmith.op(f"declared_backward::{name}")(function)


def of_gradients(grad_out0: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]: ...


def test_what_does_not_fit_is_refused_when_it_is_declared() -> None:
    register = scaled_cube.register_backward

    def unknown(
        grad_out0: Float[Tensor, "N C"], mean: Float[Tensor, "C"]
    ) -> Float[Tensor, "N C"]: ...

    def rank(
        grad_out0: Float[Tensor, "N C"], weight: Float[Tensor, "N C"]
    ) -> Float[Tensor, "N C"]: ...

    def dtype(grad_out0: Int64[Tensor, "N C"]) -> Float32[Tensor, "N C"]: ...

    def none(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]: ...

    def of_vector(grad_out1: Float[Tensor, "N"]) -> Float[Tensor, "N"]: ...

    back = "declared_backward::scaled_cube_backward"
    cases: Iterator[tuple[object, str]] = iter(
        [
            (
                lambda: register(torch.sin, grads={"x": 0}),
                " takes an operator, got <built-in method sin",
            ),
            (
                lambda: register(other("unknown", unknown), grads={"x": 0}),
                ": declared_backward::unknown takes 'mean', and a call has nothing of that name; "
                "there are x, weight, rows, factor, shift, result_out0, result_out1, grad_out0, "
                "grad_out1",
            ),
            (
                lambda: register(other("rank", rank), grads={"x": 0}),
                ": declared_backward::rank takes 'weight' as Float[Tensor, \"N C\"], and the "
                'argument is Float[Tensor, "C"]',
            ),
            (
                lambda: register(other("dtype", dtype), grads={"x": 0}),
                ": declared_backward::dtype takes 'grad_out0' as Int64[Tensor, \"N C\"], and the "
                'result is Float[Tensor, "N C"]',
            ),
            (
                lambda: register(other("none", none), grads={"x": 0}),
                ": declared_backward::none has no parameter for a gradient; call it grad_out0 or "
                "grad_out1",
            ),
            (
                lambda: register(scaled_cube_backward, saves=("x",), grads={"x": 0}),
                f": saves is ('x',), and {back} has parameters for x, weight, factor",
            ),
            (
                lambda: register(scaled_cube_backward, grads={"y": 0}),
                ": grads names 'y', which is not an argument; there are x, weight, rows, factor, "
                "shift",
            ),
            (
                lambda: register(scaled_cube_backward, grads={"factor": 0}),
                ": grads names 'factor', which has no gradient",
            ),
            (
                lambda: register(scaled_cube_backward, grads={"x": 2}),
                f": grads['x'] is 2, and {back} gives 0 (out0), 1 (out1)",
            ),
            (
                lambda: register(other("of_vector", of_vector), grads={"x": 0}),
                ': grads[\'x\'] is Float[Tensor, "N"], and the argument is Float[Tensor, "N C"]',
            ),
            (
                lambda: register(scaled_cube_backward, grads={"x": 0}),
                ": grads names no gradient of 'weight', which would be lost. Name the backward's "
                "result that is the gradient, or declare that there is none: "
                'Annotated[Float[Tensor, "C"], NonDifferentiable()].',
            ),
        ]
    )
    for call, message in cases:
        assert refused(call).startswith(message), message
    assert refused(lambda: register(3, grads={"x": 0})) == (
        " takes an operator, got 3. A function is registered by register_autograd."
    )
    forward = other("of_gradients", of_gradients)
    assert refused(lambda: register(forward, saves=("x",), grads={"x": 0})) == (
        ": saves is ('x',), and declared_backward::of_gradients has parameters for none"
    )


@opsmith.op("declared_backward::quartic")
def quartic(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x**4


@opsmith.op("declared_backward::quartic_backward")
def quartic_backward(grad: Float[Tensor, "N"], x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return 4 * x**3 * grad


@opsmith.op("declared_backward::quartic_second")
def quartic_second(
    grad_out: Float[Tensor, "N"], grad: Float[Tensor, "N"], x: Float[Tensor, "N"]
) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"]]:
    return 4 * x**3 * grad_out, 12 * x**2 * grad * grad_out


def test_a_backward_takes_the_gradient_of_its_own_result_beside_its_argument_grad() -> None:
    quartic.register_backward(quartic_backward, grads={"x": 0})
    quartic_backward.register_backward(quartic_second, grads={"grad": 0, "x": 1})
    x = torch.tensor([1.0, -2.0], requires_grad=True)
    (slope,) = torch.autograd.grad(quartic(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(slope.sum(), x)
    assert second.tolist() == [12, 48]


def test_the_name_for_that_gradient_is_said() -> None:
    def alone(grad: Float[Tensor, "N"], x: Float[Tensor, "N"]) -> Float[Tensor, "N"]: ...

    assert refused(
        lambda: quartic_backward.register_backward(other("alone", alone), grads={"x": 0})
    ).endswith(": declared_backward::alone has no parameter for a gradient; call it grad_out")
