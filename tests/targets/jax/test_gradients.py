"""Gradients in JAX: from the operator's backward, from its reference, or refused with a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from gallery.bev_pool_v2.bev_pool_v2 import bev_pool_v2
from gallery.my_add.my_add import my_add
from opsmith.targets.jax import proofs
from opsmith.targets.jax.derivative import derivative

jax = pytest.importorskip("jax")
jnp = jax.numpy


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


KERNEL = """\
#include <opsmith/kernel.h>
#include "mix.h"
#include <cmath>
template <typename T>
void mix(const opsmith::Context&, const jax_test::mix_args<T>& a) {
  for (int64_t n = 0; n < a.N; ++n) {
    a.out1[n] = 0;
    for (int64_t m = 0; m < a.M; ++m) {
      const T value = std::pow(a.x(n, m), static_cast<T>(a.power)) * static_cast<T>(a.scale);
      a.out0(n, a.flip ? a.M - 1 - m : m) =
          value + (a.bias ? a.bias[m] : 0) + (a.power > 2 ? 1 : 0);
      a.out1[n] += a.x(n, m);
    }
  }
}
OPSMITH_KERNEL(jax_test, mix, cpu, float, double)
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("gradients")
    (folder / "mix.cpp").write_text(KERNEL)
    mix.register_kernel("cpu", source=folder / "mix.cpp", flags=("-O0",))
    operators = [my_add, bev_pool_v2, mix]
    opsmith.export(operators, target="jax", out=folder / "dist", say=None, verify=False)
    return opsmith.load(folder / "dist")


def same(loaded: Any, operator: Any, **arguments: Any) -> None:
    given = operator.arguments((), arguments)
    proofs._differentiated(loaded, operator, given)


def test_the_backward_that_the_author_wrote(loaded) -> None:
    a = jnp.arange(6.0).reshape(2, 3)
    da, db = jax.grad(lambda a, b: (a * loaded.ops.my_add(a, b)).sum(), argnums=(0, 1))(a, a + 1)
    assert (da == 3 * a + a + 1 + a).all()
    assert (db == a).all()


def test_a_backward_that_is_an_operator_runs_its_kernel(loaded) -> None:
    assert "bev::bev_pool_v2_backward" in loaded
    case = next(iter(bev_pool_v2.cases[0](torch.float32, 0)))
    before = loaded["bev::bev_pool_v2_backward"].library.calls()
    same(loaded, bev_pool_v2, **case)
    assert loaded["bev::bev_pool_v2_backward"].library.calls() == before + 1


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("bias", [None, torch.ones(3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_reference_gives_the_gradient(loaded, flip, bias, dtype) -> None:
    x = torch.linspace(0.5, 2, 12, dtype=dtype).reshape(4, 3)
    given = None if bias is None else bias.to(dtype)
    same(loaded, mix, x=x, bias=given, power=2, scale=0.3, flip=flip)
    same(loaded, mix, x=x[:1], bias=given, power=1, scale=-7.0, flip=flip)


def test_a_path_that_pytorch_did_not_take_is_refused(loaded) -> None:
    def loss(x: Any) -> Any:
        return loaded.ops.mix(x, None, 5, 1.0)[0].sum()

    assert loss(jnp.ones((2, 3))) == 12
    with pytest.raises(opsmith.errors.DifferentiationError) as caught:
        jax.grad(loss)(jnp.ones((2, 3)))
    assert str(caught.value) == (
        "jax_test::mix: its derivative was translated for calls where power <= 2. Register a case "
        "like this call (register_cases) and export again."
    )


def test_a_number_that_is_a_size_may_be_one(loaded) -> None:
    from gallery.bev_pool_v2.inputs import camera_case

    case = camera_case(torch.float32, 0)
    assert case["bev_size"][0] == 1
    same(loaded, bev_pool_v2, **{**case, "feat": case["feat"][..., :2].contiguous()})


def test_sizes_of_zero_have_a_gradient(loaded) -> None:
    case = next(iter(bev_pool_v2.cases[0](torch.float32, 0)))
    empty = torch.zeros(0, dtype=torch.int32)
    points = {name: empty for name in case if name.startswith(("ranks", "interval"))}
    same(loaded, bev_pool_v2, **{**case, **points, "bev_size": (1, 0, 3)})


def test_gradients_under_vmap_and_jit(loaded) -> None:
    x = jnp.arange(24.0).reshape(4, 2, 3)
    each = jax.jit(jax.vmap(jax.grad(lambda x: (x * loaded.ops.my_add(x, x)).sum())))(x)
    assert (each == 6 * x).all()
    whole = jax.grad(lambda x: (x * jax.vmap(loaded.ops.my_add)(x, x)).sum())(x)
    assert (whole == 6 * x).all()


def test_a_branch_on_a_size_of_one_is_a_path_of_its_own() -> None:
    @opsmith.op("jax_test::sized", autograd="reference")
    def sized(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x * 2 if x.shape[0] != 1 else x * 3

    found = derivative(sized)
    assert not isinstance(found, str)
    general, single = found.paths
    assert "aten.mul(x, 2)" in general.body[0]
    assert "aten.mul(x, 3)" in single.body[0]
    assert ("x.shape[0] == 1", False) in single.conditions


def test_an_operator_without_a_gradient_says_so(tmp_path: Path) -> None:
    @opsmith.op("jax_test::plain")
    def plain(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x + 1

    assert derivative(plain) == (
        "has no gradient. Register one with plain.register_autograd(backward, setup_context=...), "
        'or declare it with autograd="reference", and export again.'
    )


def test_what_cannot_be_translated_is_named() -> None:
    @opsmith.op("jax_test::masked", autograd="reference")
    def masked(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return torch.where(x > 0, x, torch.special.bessel_j0(x))

    assert derivative(masked) == (
        "has no gradient in JAX: its reference uses aten::special_bessel_j0, which has no "
        "translation to JAX."
    )
