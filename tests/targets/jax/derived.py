"""Operators whose derivatives several files of tests ask for, and how one is compared."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
import pytest
import torch
from jaxtyping import Float, Inexact
from torch import Tensor

import opsmith
from opsmith.targets.jax.derivatives import derivative
from opsmith.targets.jax.runner import wide

jax = pytest.importorskip("jax")
jnp = jax.numpy

from opsmith.targets.jax.package import aten  # noqa: E402
from opsmith.targets.jax.package.derivative import (  # noqa: E402
    ByReference,
    Variant,
    inputs_of,
)


@opsmith.op("jax_test::mix", autograd="reference")
def mix(
    x: Float[Tensor, "N M"],
    bias: Float[Tensor, "M"] | None,
    power: int,
    scale: float,
    flip: bool = False,
) -> tuple[Float[Tensor, "N M"], Float[Tensor, "N"]]:
    """Branches on whatever JAX has to fix, and mutates what it made."""
    out = torch.zeros_like(x).add_(x**power) * scale
    if bias is not None:
        out = out + bias
    if flip:
        out = out.flip(1)
    if power > 2:
        out = out + 1
    return out, x.reshape(-1, x.shape[1]).sum(1)


@opsmith.op("jax_test::turn")
def turn(
    x: Inexact[Tensor, "N"], y: Annotated[Inexact[Tensor, "N"], opsmith.NonDifferentiable()]
) -> Inexact[Tensor, "N"]:
    """Multiply complex numbers, of which no gradient reaches the second."""
    return x * y


def save(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


@turn.register_autograd(setup_context=save)
def turn_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    x, y = ctx.saved_tensors
    return grad * y.conj(), grad * x.conj()


def same_by_reference(operator: opsmith.Operator, x: Tensor, **numbers: Any) -> None:
    """What the reference was translated to has its results' gradients, without any kernel."""
    found = derivative(operator)
    assert not isinstance(found, str), found
    variants = []
    for path in found.paths:
        lines = [f"def run({', '.join(path.inputs)}):", *path.body]
        named: dict[str, Any] = {"aten": aten, "math": math}
        exec("\n    ".join(lines), named)
        variants += [Variant(kinds, path.compiled, named["run"]) for kinds in path.kinds]
    x.requires_grad_()
    out = operator.reference(x, **numbers)
    weights = torch.randn_like(out)
    (expected,) = torch.autograd.grad(out, x, weights)
    with wide():  # for the integers in between
        rule = ByReference(operator.signature, variants)

        # Else each step is a program of its own, and XLA compiles for most of the time.
        @jax.jit
        def run(x: Any, weights: Any) -> Any:
            arrays = {"x": x, **numbers}
            chosen = rule.choose(arrays, inputs_of(operator.signature, arrays))
            return rule(arrays, (), (weights,)), chosen(*arrays.values())

        given, (value,) = run(jnp.asarray(x.detach().numpy()), jnp.asarray(weights.numpy()))
    torch.testing.assert_close(torch.tensor(np.asarray(given["x"])), expected)
    torch.testing.assert_close(torch.tensor(np.asarray(value)), out.detach())
