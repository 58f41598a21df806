"""Derivatives under nested `torch.func` are those of the reference, or are refused by name."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Annotated, Any

import nested_operators as ops
import pytest
import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    vjp,
    vmap,
)
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

import opsmith
from opsmith import NonDifferentiable
from opsmith.errors import DifferentiationError

Function = Callable[..., Tensor]

X = torch.tensor([1.0, -2.0, 0.5], dtype=torch.double)
W = torch.tensor([0.7, 1.5, -1.2], dtype=torch.double)
V = torch.tensor([0.3, -0.4, 1.1], dtype=torch.double)
MANY = torch.stack([X, 0.5 * X])


def loss(f: Function) -> Function:
    return lambda x, w=W: f(x, w).sin().sum() + f(x, w).square().sum()


def leaf(value: Tensor) -> Tensor:
    return value.clone().requires_grad_()


def outside(found: Any, *leaves: Tensor) -> Any:
    """Return what plain autograd makes of values that come out of transforms."""
    total = sum(value.square().sum() for value in tree_leaves(found))
    return torch.autograd.grad(total, leaves)


def squares(f: Function) -> Function:
    """Return the sum of the squares of a gradient."""
    return lambda x: grad(loss(f))(x).square().sum()


class Layer(torch.nn.Module):
    def __init__(self, f: Function) -> None:
        super().__init__()
        self.f, self.w = f, torch.nn.Parameter(W.clone())

    def forward(self, x: Tensor) -> Tensor:
        return self.f(x, self.w)


def with_dual(function: Callable[[Tensor], Any]) -> Any:
    with forward_ad.dual_level():
        return function(forward_ad.make_dual(leaf(X), V))


def pull_late(f: Function) -> Any:
    """Call a `vjp_fn` inside a level that began when its own had ended."""
    pull = vjp(lambda x: f(x, W), X)[1]
    return grad(lambda v: pull(v)[0].square().sum())(V), vmap(pull)(MANY)


def pull_outside(f: Function) -> Any:
    x, v = leaf(X), leaf(V)
    value, pull = vjp(lambda p: f(p, W), x)
    return outside((value, pull(v)), x, v)


def pull_of_pull(f: Function) -> Any:
    def pulled(x: Tensor) -> Tensor:
        return vjp(lambda p: f(p, W), x)[1](V)[0]

    value, pull = vjp(pulled, X)
    return value, pull(V)


def force_field(f: Function) -> Any:
    """Train on an energy and on its gradient, as force fields are."""
    x, w = leaf(X), leaf(W)
    force, energy = grad_and_value(loss(f))(x, w)
    return outside((force, energy), x, w)


def energy_alone(f: Function) -> Any:
    x = leaf(X)
    return outside(grad_and_value(loss(f))(x)[1], x)


def auxiliary(f: Function) -> Any:
    x = leaf(X)
    slope, value = grad(lambda p: (loss(f)(p), f(p, W)), has_aux=True)(x)
    return outside(value, x), slope


def closure(f: Function) -> Any:
    w = leaf(W)
    return outside(grad(lambda x: f(x, w).square().sum())(X), w)


def without_gradient_inside(f: Function) -> Any:
    x = leaf(X)

    def scaled(p: Tensor) -> Tensor:
        with torch.no_grad():
            scale = f(p, W)
        return (f(p, W) * scale).sum()

    return outside(grad(scaled)(x), x)


def checkpointed(f: Function) -> Any:
    x = leaf(X)
    return outside(checkpoint(loss(f), x, use_reentrant=False), x)


def parameters(f: Function) -> Any:
    layer = Layer(f)
    given = {"w": W}

    def one(own: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(layer, own, (x,)).square().sum()

    return vmap(grad(one), in_dims=(None, 0))(given, MANY)


def tangent_outside(f: Function) -> Any:
    x, v, w = leaf(X), leaf(V), leaf(W)
    return outside(jvp(lambda p: f(p, w), (x,), (v,)), x, v, w)


def gradient_of_dual(f: Function) -> Any:
    """Differentiate in reverse mode inside a level of forward mode."""

    def slope(x: Tensor) -> Any:
        (found,) = torch.autograd.grad(loss(f)(x), x, create_graph=True)
        return tuple(forward_ad.unpack_dual(found))

    return with_dual(slope)


def dual_outside(f: Function) -> Any:
    x, v = leaf(X), leaf(V)
    with forward_ad.dual_level():
        value, tangent = forward_ad.unpack_dual(f(forward_ad.make_dual(x, v), W))
        return outside((value, tangent), x, v)


def double_inside(f: Function) -> Any:
    """Call plain autograd inside a level."""

    def slope(x: Tensor) -> Tensor:
        (found,) = torch.autograd.grad(loss(f)(x), x, create_graph=True)
        return found.square().sum()

    return grad(slope)(X)


def linear(f: Function) -> Any:
    value, push = linearize(lambda x: f(x, W), X)
    return value, push(V)


REVERSE: dict[str, Callable[[Function], Any]] = {
    "grad": lambda f: grad(loss(f), argnums=(0, 1))(X, W),
    "grad grad": lambda f: grad(squares(f))(X),
    "grad by w of grad by x": lambda f: grad(
        lambda w: grad(lambda x: loss(f)(x, w))(X).square().sum()
    )(W),
    "grad grad grad": lambda f: grad(lambda x: grad(squares(f))(x).square().sum())(X),
    "vjp": lambda f: vjp(f, X, W)[1](V),
    "vjp vjp": pull_of_pull,
    "vjp, later": pull_late,
    "jacrev": lambda f: jacrev(f, argnums=(0, 1))(X, W),
    "jacrev grad": lambda f: jacrev(grad(loss(f)))(X),
    "jacrev jacrev": lambda f: jacrev(jacrev(lambda x: f(x, W)))(X),
    "vmap grad": lambda f: vmap(grad(loss(f)))(MANY),
    "vmap grad grad": lambda f: vmap(grad(squares(f)))(MANY),
    "grad vmap": lambda f: grad(lambda x: vmap(lambda s: f(s * x, W))(MANY).sin().sum())(X),
    "grad vmap grad": lambda f: grad(
        lambda x: vmap(grad(loss(f)))(torch.stack([x, 2 * x])).square().sum()
    )(X),
    "functional_call": parameters,
    "checkpoint": checkpointed,
    "force field": force_field,
    "energy alone": energy_alone,
    "auxiliary value": auxiliary,
    "vjp, outside": pull_outside,
    "closure, outside": closure,
    "no_grad inside": without_gradient_inside,
    "vmap grad, outside": lambda f: outside(vmap(grad(loss(f)))(torch.stack([x := leaf(X)])), x),
    "jacrev, outside": lambda f: outside(jacrev(lambda p: f(p, W))(x := leaf(X)), x),
    "autograd.grad inside": double_inside,
}

FORWARD: dict[str, Callable[[Function], Any]] = {
    "jvp": lambda f: jvp(f, (X, W), (V, X)),
    "jvp jvp": lambda f: jvp(lambda x: jvp(lambda p: f(p, W), (x,), (V,))[1], (X,), (V,)),
    "jvp grad": lambda f: jvp(grad(loss(f)), (X,), (V,)),
    "grad jvp": lambda f: grad(lambda x: jvp(lambda p: f(p, W), (x,), (V,))[1].sin().sum())(X),
    "jacfwd": lambda f: jacfwd(lambda x: f(x, W))(X),
    "jacfwd grad": lambda f: jacfwd(grad(loss(f)))(X),
    "jacfwd jacrev": lambda f: jacfwd(jacrev(lambda x: f(x, W)))(X),
    "jacrev jacfwd": lambda f: jacrev(jacfwd(lambda x: f(x, W)))(X),
    "hessian": lambda f: hessian(loss(f))(X),
    "vmap jvp": lambda f: vmap(lambda v: jvp(lambda x: f(x, W), (X,), (v,))[1])(MANY),
    "linearize": linear,
    "jvp, outside": tangent_outside,
    "hessian, outside": lambda f: outside(hessian(loss(f))(x := leaf(X)), x),
    "dual, outside": dual_outside,
    "autograd.grad of a dual": gradient_of_dual,
}

COMPILED = ["grad grad", "jacrev grad", "vmap grad", "jacfwd grad", "hessian"]


def require_equal(found: Any, expected: Any) -> None:
    torch.testing.assert_close(tree_leaves(found), tree_leaves(expected))


@pytest.mark.parametrize(
    ("name", "nesting"),
    # Within one level, what `setup_context` computes has no graph, as in torch.library.
    [p for p in itertools.product(ops.PYTHON, REVERSE) if p != ("middle", "autograd.grad inside")],
)
def test_every_nesting_differentiates_every_kind_of_gradient(name: str, nesting: str) -> None:
    require_equal(REVERSE[nesting](ops.PYTHON[name]), REVERSE[nesting](ops.formula))


@pytest.mark.parametrize("nesting", FORWARD)
def test_forward_mode_of_the_reference_is_right_in_every_nesting(nesting: str) -> None:
    require_equal(FORWARD[nesting](ops.PYTHON["reference"]), FORWARD[nesting](ops.formula))


@pytest.mark.parametrize("nesting", FORWARD)
@pytest.mark.parametrize("name", [name for name in ops.PYTHON if name != "reference"])
def test_forward_mode_without_a_reference_is_refused_by_name(name: str, nesting: str) -> None:
    with pytest.raises(DifferentiationError, match=rf"^nested::{name}\w*: has no forward-mode"):
        FORWARD[nesting](ops.PYTHON[name])


@pytest.mark.slow
@pytest.mark.parametrize("nesting", [*REVERSE, *FORWARD])
@pytest.mark.parametrize("name", ["cpp_reference", "cpp_hand", "cpp_operator"])
def test_kernels_in_cpp_differentiate_as_those_in_python(name: str, nesting: str) -> None:
    run = {**REVERSE, **FORWARD}[nesting]
    operator = ops.in_cpp()[name]
    if nesting in FORWARD and name != "cpp_reference":
        with pytest.raises(DifferentiationError, match=r"^nested::cpp_\w+: has no forward-mode"):
            run(operator)
    else:
        require_equal(run(operator), run(ops.formula))


@pytest.mark.slow(cases=3)
@pytest.mark.parametrize("name", ["operator", "reference", "hand"])
def test_compiled_nestings_are_those_of_the_reference(name: str) -> None:
    every = {**REVERSE, **FORWARD}
    for nesting in COMPILED:
        if nesting in FORWARD and name != "reference":
            continue
        torch._dynamo.reset()
        run = every[nesting]
        found = torch.compile(
            lambda run=run: run(ops.PYTHON[name]), backend="aot_eager", fullgraph=True
        )()
        require_equal(found, run(ops.formula))


def test_a_compiled_force_field_trains() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(
        grad_and_value(loss(ops.PYTHON["operator"])), backend="aot_eager", fullgraph=True
    )
    x = leaf(X)
    expected = leaf(X)
    require_equal(
        outside(compiled(x), x), outside(grad_and_value(loss(ops.formula))(expected), expected)
    )


# --- operators of other shapes --------------------------------------------------------------------


@opsmith.op("nested::many", autograd="reference")
def many(
    xs: list[Float[Tensor, "N"]],
    w: Float[Tensor, "N"] | None,
    rows: Int64[Tensor, "N"],
    fixed: Annotated[Float[Tensor, "N"], NonDifferentiable()],
) -> tuple[
    Float[Tensor, "N"], Int64[Tensor, "N"], Annotated[Float[Tensor, "N"], NonDifferentiable()]
]:
    total = sum(x**3 for x in xs) * fixed.detach()
    return total if w is None else total * w, rows + 1, total.detach() * 2


def many_formula(xs: list[Tensor], w: Tensor | None, rows: Tensor, fixed: Tensor) -> Any:
    total = sum(x**3 for x in xs) * fixed
    return total if w is None else total * w, rows + 1, total.detach() * 2


@pytest.mark.parametrize("weight", [None, W], ids=["absent", "given"])
def test_lists_and_optional_and_integer_arguments_nest(weight: Tensor | None) -> None:
    rows = torch.arange(3)

    def run(f: Callable[..., Any]) -> Any:
        def value(x: Tensor) -> Tensor:
            first, _, last = f([x, 2 * x], weight, rows, W)
            return first.sin().sum() + last.sum()

        x = leaf(X)
        return (
            grad(lambda p: grad(value)(p).square().sum())(X),
            hessian(value)(X),
            jvp(grad(value), (X,), (V,)),
            outside(grad_and_value(value)(x), x),
        )

    require_equal(run(many), run(many_formula))


def test_complex_gradients_nest() -> None:
    z = torch.tensor([1 + 2j, -0.5 + 1j], dtype=torch.complex128)

    def run(f: Function) -> Any:
        def value(p: Tensor) -> Tensor:
            return f(p, p + 1).abs().square().sum()

        return grad(lambda p: grad(value)(p).abs().square().sum())(z)

    require_equal(run(ops.complex_product), run(lambda x, w: x * x * w))


def test_an_operator_that_writes_is_refused_in_every_nesting() -> None:
    for nesting in ("grad", "grad grad", "force field"):
        with pytest.raises(
            DifferentiationError, match=r"torch\.func differentiates no such operator"
        ):
            REVERSE[nesting](lambda x, w: ops.write(x.clone(), w))


def test_a_backward_that_cannot_be_differentiated_again_raises_at_every_level() -> None:
    once = ops.once
    require_equal(grad(loss(once))(X), grad(loss(ops.formula))(X))
    x = leaf(X)
    force, energy = grad_and_value(loss(once))(x)
    require_equal(force, grad(loss(ops.formula))(X))  # a force that nobody differentiates
    require_equal(outside(energy, x), energy_alone(ops.formula))
    for nesting in ("grad grad", "vjp vjp", "jacrev grad", "vmap grad grad", "force field"):
        with pytest.raises(DifferentiationError, match=r"^nested::once: its gradient cannot be"):
            REVERSE[nesting](once)


def test_a_backward_without_a_gradient_of_its_own_raises_at_every_level() -> None:
    require_equal(grad(loss(ops.first_alone))(X), grad(loss(ops.formula))(X))
    for nesting in ("grad grad", "vjp vjp", "jacrev grad", "vmap grad grad", "force field"):
        with pytest.raises(DifferentiationError, match=r"^nested::first_alone_backward: "):
            REVERSE[nesting](ops.first_alone)
