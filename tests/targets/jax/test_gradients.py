"""Gradients in JAX are computed by the operator that is declared as the backward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Float, Float32, Inexact
from torch import Tensor

import opsmith

jax = pytest.importorskip("jax")
jnp = jax.numpy

from opsmith.targets.jax.runner import to_jax  # noqa: E402

SOURCE = """
#include <opsmith/kernel.h>
#include <opsmith/math.h>
#include "mix.h"
#include "mix_backward.h"
#include "turn.h"
#include "turn_backward.h"

template <typename T>
void mix(const opsmith::Context&, const jax_gradients::mix_args<T>& a) {
  for (int64_t i = 0; i < a.N; ++i) {
    a.out0(i) = a.x(i) * a.x(i) * static_cast<T>(a.scale) + (a.bias ? (*a.bias)(i) : T(0));
    a.out1(i) = 3 * a.x(i);
  }
}
OPSMITH_KERNEL(jax_gradients, mix, cpu, float, double)

template <typename T>
void mix_backward(const opsmith::Context&, const jax_gradients::mix_backward_args<T>& a) {
  for (int64_t i = 0; i < a.N; ++i) {
    a.out0(i) = a.grad_out0(i) * 2 * a.x(i) * static_cast<T>(a.scale) + 3 * a.grad_out1(i);
    a.out1(i) = a.grad_out0(i);
  }
}
OPSMITH_KERNEL(jax_gradients, mix_backward, cpu, float, double)

template <typename T>
void turn(const opsmith::Context&, const jax_gradients::turn_args<T>& a) {
  for (int64_t i = 0; i < a.N; ++i) a.out(i) = a.x(i) * a.y(i);
}
OPSMITH_KERNEL(jax_gradients, turn, cpu, float, opsmith::complex<float>)

template <typename T>
void turn_backward(const opsmith::Context&, const jax_gradients::turn_backward_args<T>& a) {
  for (int64_t i = 0; i < a.N; ++i) {
    a.out0(i) = a.grad(i) * opsmith::conj(a.y(i));
    a.out1(i) = a.grad(i) * opsmith::conj(a.x(i));
  }
}
OPSMITH_KERNEL(jax_gradients, turn_backward, cpu, float, opsmith::complex<float>)
"""


@opsmith.op("jax_gradients::mix")
def mix(
    x: Float[Tensor, "N"], bias: Float[Tensor, "N"] | None = None, scale: float = 1.0
) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"]]:
    return x * x * scale + (0 if bias is None else bias), 3 * x


@opsmith.op("jax_gradients::mix_backward")
def mix_backward(
    grad_out0: Float[Tensor, "N"],
    grad_out1: Float[Tensor, "N"],
    x: Float[Tensor, "N"],
    scale: float,
) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"]]:
    return grad_out0 * 2 * x * scale + 3 * grad_out1, grad_out0.clone()


mix.register_backward(mix_backward, grads={"x": 0, "bias": 1})


@opsmith.op("jax_gradients::turn")
def turn(x: Inexact[Tensor, "N"], y: Inexact[Tensor, "N"]) -> Inexact[Tensor, "N"]:
    return x * y


@opsmith.op("jax_gradients::turn_backward")
def turn_backward(
    grad: Inexact[Tensor, "N"], x: Inexact[Tensor, "N"], y: Inexact[Tensor, "N"]
) -> tuple[Inexact[Tensor, "N"], Inexact[Tensor, "N"]]:
    return grad * y.conj(), grad * x.conj()


turn.register_backward(turn_backward, grads={"x": 0, "y": 1})
turn_backward.register_autograd(lambda ctx, *grads: (None, None, None))


@opsmith.op("jax_gradients::by_reference", autograd="reference")
def by_reference(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2


@opsmith.op("jax_gradients::python_backward")
def python_backward(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2


@opsmith.op("jax_gradients::without")
def without(grad: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return grad * 2


python_backward.register_backward(without, grads={"x": 0})

DOUBLE = """
#include <opsmith/kernel.h>
#include "by_reference.h"
#include "python_backward.h"

template <typename Args>
void doubled(const Args& a) {
  for (int64_t i = 0; i < a.N; ++i) a.out(i) = 2 * a.x(i);
}
template <typename T>
void by_reference(const opsmith::Context&, const jax_gradients::by_reference_args<T>& a) {
  doubled(a);
}
OPSMITH_KERNEL(jax_gradients, by_reference, cpu, float)
template <typename T>
void python_backward(const opsmith::Context&, const jax_gradients::python_backward_args<T>& a) {
  doubled(a);
}
OPSMITH_KERNEL(jax_gradients, python_backward, cpu, float)
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("gradients")
    kernels = {
        "mixed.cpp": (SOURCE, (mix, mix_backward, turn, turn_backward)),
        "double.cpp": (DOUBLE, (by_reference, python_backward)),
    }
    for name, (text, operators) in kernels.items():
        (folder / name).write_text(text)
        for operator in operators:
            operator.register_kernel("cpu", source=folder / name)
    exported = [mix, turn, by_reference, python_backward]
    artifact = opsmith.export(exported, target="jax", out=folder / "dist", say=None)
    return opsmith.load(artifact.folder)


@pytest.mark.slow
@pytest.mark.parametrize("with_bias", [False, True])
def test_every_gradient_is_that_of_pytorch(loaded: Any, with_bias: bool) -> None:
    x, bias = (torch.randn(4, requires_grad=True) for _ in range(2))
    given = [x, bias] if with_bias else [x]
    weights = torch.randn(2, 4)
    results = mix(*given, scale=3.0)
    expected = torch.autograd.grad(results, given, list(weights))

    def call(*arrays: Any) -> Any:
        return loaded.ops.mix(*arrays, scale=3.0)

    _, pull = jax.vjp(call, *map(to_jax, given))
    found = jax.jit(pull)(tuple(map(to_jax, weights)))
    for one, true in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(one), true.numpy(), rtol=1e-6)
    batched = jax.vmap(jax.grad(lambda x: call(x)[0].sum()))(jnp.stack([to_jax(x)] * 2))
    np.testing.assert_allclose(np.asarray(batched)[1], (6 * x).detach().numpy(), rtol=1e-6)


@pytest.mark.slow
def test_the_gradient_of_a_complex_number_is_jaxs_own(loaded: Any) -> None:
    x, y = (np.asarray(torch.randn(3, dtype=torch.complex64)) for _ in range(2))

    def total(function: Any) -> Any:
        return jax.grad(lambda x, y: (function(x, y) * jnp.asarray(x)).real.sum(), (0, 1))

    found, expected = total(loaded.ops.turn)(x, y), total(jnp.multiply)(x, y)
    for one, true in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(true), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "by_reference",
            "jax_gradients::by_reference: has no gradient in JAX, since its reference is "
            "PyTorch's. Declare an operator with a C++ kernel that computes it, name it with "
            "by_reference.register_backward, and export again.",
        ),
        (
            "python_backward",
            "jax_gradients::python_backward: has no gradient in JAX: of its backward "
            "jax_gradients::without, JAX calls a C++ kernel, and the operator has none for the "
            'CPU. Add one: without.register_kernel("cpu", source="without.cpp").',
        ),
        (
            "mix_backward",
            "jax_gradients::mix_backward: has no gradient in JAX. Declare an operator with a C++ "
            "kernel that computes it, name it with mix_backward.register_backward, and export "
            "again.",
        ),
    ],
)
def test_who_has_no_gradient_in_jax_says_what_to_declare(
    loaded: Any, name: str, message: str
) -> None:
    x = jnp.ones(2)
    more = (x, x, 1.0) if name == "mix_backward" else ()
    with pytest.raises(RuntimeError) as caught:
        jax.grad(lambda x: jax.tree.leaves(getattr(loaded.ops, name)(x, *more))[0].sum())(x)
    assert str(caught.value) == message
    assert message.partition(": ")[2].rstrip(".") in Path(
        loaded.artifact.folder / "README.md"
    ).read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_row_compares_them_and_finds_a_wrong_one(tmp_path: Path) -> None:
    from alone import row_alone

    for factor, right in ((2, True), (3, False)):

        @opsmith.op(f"jax_gradients::twice{factor}")
        def twice(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
            return x * 2

        @opsmith.op(f"jax_gradients::twice{factor}_backward")
        def back(grad: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
            return grad * 2

        twice.register_backward(back, grads={"x": 0})
        for operator, argument, by in ((twice, "x", 2), (back, "grad", factor)):
            name = operator.signature.name
            (tmp_path / f"{name}.cpp").write_text(
                f'#include <opsmith/kernel.h>\n#include "{name}.h"\n'
                f"void {name}(const opsmith::Context&, const jax_gradients::{name}_args& a)"
                f" {{\n  for (int64_t i = 0; i < a.N; ++i) a.out(i) = {by} * a.{argument}(i);\n}}\n"
                f"OPSMITH_KERNEL(jax_gradients, {name}, cpu)\n"
            )
            operator.register_kernel("cpu", source=tmp_path / f"{name}.cpp")
        row = row_alone(twice, "jax-gradient")
        assert (row.status == "passed") is right, row.message
        assert right or ("expected" in row.message and row.blame.startswith("backward: "))
