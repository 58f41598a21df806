"""Gradients in JAX: from the operator's backward, from its reference, or refused with a reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from derived import mix, save, turn
from jaxtyping import Float, Float32
from torch import Tensor

import opsmith
from gallery.bev_pool_v2.bev_pool_v2 import bev_pool_v2
from gallery.my_add.my_add import my_add
from opsmith import checks
from opsmith.checks.numerics.gradients import leaves_of
from opsmith.targets.jax import proofs
from opsmith.targets.jax.derivatives import derivative

pytestmark = pytest.mark.slow(cases=2)

jax = pytest.importorskip("jax")
jnp = jax.numpy

from opsmith.targets.jax.package.derivative import (  # noqa: E402
    ByReference,
    Variant,
)

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


TURN = """\
#include <opsmith/kernel.h>
#include "turn.h"
template <typename T>
void turn(const opsmith::Context&, const jax_test::turn_args<T>& a) {
  for (int64_t n = 0; n < a.N; ++n) a.out[n] = a.x[n] * a.y[n];
}
OPSMITH_KERNEL(jax_test, turn, cpu, opsmith::half, float, opsmith::complex64)
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("gradients")
    (folder / "mix.cpp").write_text(KERNEL)
    mix.register_kernel("cpu", source=folder / "mix.cpp", flags=("-O0",))
    (folder / "turn.cpp").write_text(TURN)
    turn.register_kernel("cpu", source=folder / "turn.cpp", flags=("-O0",))
    operators = [my_add, bev_pool_v2, mix, turn]
    opsmith.export(operators, target="jax", out=folder / "dist", say=None, verify=False)
    return opsmith.load(folder / "dist")


def same(loaded: Any, operator: Any, **arguments: Any) -> None:
    """The gradients in JAX are those in PyTorch."""
    given, leaves = leaves_of(operator.arguments((), arguments), operator.signature)
    positional, keywords = operator.split(given)
    returned = operator(*positional, **keywords)
    results = list(returned) if isinstance(returned, tuple) else [returned]
    weights = [torch.randn_like(result) for result in results]
    expected = torch.autograd.grad(
        results, list(leaves.values()), weights, allow_unused=True, materialize_grads=True
    )
    found = proofs._differentiated(loaded, operator, given, weights)
    torch.testing.assert_close(list(found), list(expected))


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


TIMES = """\
#include <opsmith/kernel.h>
#include "NAME.h"
void NAME(const opsmith::Context&, const jax_test::NAME_args& a) {
  for (int64_t n = 0; n < a.N; ++n) a.out[n] = static_cast<float>(a.by) * a.READ[n];
}
OPSMITH_KERNEL(jax_test, NAME, cpu)
"""


@pytest.mark.long
def test_an_operator_and_its_backward_share_an_export_and_take_any_number(
    monkeypatch, tmp_path: Path
) -> None:
    @opsmith.op("jax_test::times_backward")
    def times_backward(grad: Float32[Tensor, "N"], by: float = 2.0) -> Float32[Tensor, "N"]:
        return grad * by

    @opsmith.op("jax_test::times")
    def times(x: Float32[Tensor, "N"], by: float = 2.0) -> Float32[Tensor, "N"]:
        return x * by

    times.register_backward(times_backward, saves=("by",), grads={"x": 0})
    for operator in (times, times_backward):
        name = operator.signature.name
        path = tmp_path / f"{name}.cpp"
        read = operator.signature.parameters[0].name
        path.write_text(TIMES.replace("NAME", name).replace("READ", read))
        operator.register_kernel("cpu", source=path, flags=("-O0",))
    exported = []

    def counted(operator: opsmith.Operator, **settings: Any) -> Any:
        exported.append(operator.name)
        return opsmith.export(operator, **settings)

    monkeypatch.setattr("opsmith.checks.catalogue.targets.export", counted)
    select = ["jax", "jax-gradient"]
    report = checks.run([times, times_backward], select=select, examples=9, isolate=False)
    assert report.ok, report.explain()
    ran = [(row.operator, row.check) for row in report.rows if row.status == "passed"]
    assert (times.name, "jax-gradient") in ran
    assert (times_backward.name, "jax") in ran
    assert exported == [times.name]


@pytest.mark.long  # test_a_path_that_pytorch_did_not_take_is_refused
def test_sampled_calls_that_have_no_gradient_are_counted_and_fail_nothing(tmp_path: Path) -> None:
    @opsmith.op("jax_test::looped", autograd="reference")
    def looped(x: Float32[Tensor, "N"], by: float = 2.0) -> Float32[Tensor, "N"]:
        return torch.stack([x[i] * by for i in range(len(x))]) if len(x) else x.clone()

    source = tmp_path / "looped.cpp"
    source.write_text(TIMES.replace("NAME", "looped").replace("READ", "x"))
    looped.register_kernel("cpu", source=source, flags=("-O0",))
    (_, row) = checks.run(looped, select=["jax-gradient"], examples=30, isolate=False).rows
    assert row.status == "passed", row.message
    (note,) = [note for note in row.notes if "no gradient" in note]
    assert re.match(r"JAX has no gradient for \d+ of the \d+ calls: jax_test::looped: its", note)
    assert "for calls where x.shape[0] == 5." in note


def test_a_number_may_reach_an_operator_by_name_in_a_list_or_computed(tmp_path: Path) -> None:
    @opsmith.op("jax_test::many_backward")
    def many_backward(
        grad: Float32[Tensor, "N"], some: tuple[float, float], *, by: float = 2.0, to: float = 1.0
    ) -> Float32[Tensor, "N"]:
        return grad * (some[0] + some[1]) * by * to

    source = tmp_path / "many_backward.cpp"
    source.write_text("// is not built: its calls are translated")
    many_backward.register_kernel("cpu", source=source)

    @opsmith.op("jax_test::many")
    def many(x: Float32[Tensor, "N"], by: float = 2.0, to: float = 1.0) -> Float32[Tensor, "N"]:
        return x * by * (2 + to)

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.by, ctx.to = inputs[1:]

    @many.register_autograd(setup_context=setup_context)
    def backward(ctx: Any, grad: Tensor) -> Any:
        return many_backward(grad, (2.0, ctx.to), by=ctx.by * 2, to=0.5), None, None

    found = derivative(many)
    assert not isinstance(found, str), found
    assert not any("by" in text or "to" in text for p in found.paths for text, _ in p.conditions)
    body = "\n".join(found.paths[0].body)
    (doubled,) = re.findall(r"(\w+) = by \* 2\.0", body)
    assert f'["jax_test::many_backward"](grad_out, [2.0, to], by={doubled}, to=0.5)' in body


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("bias", [None, torch.ones(3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_reference_gives_the_gradient(loaded, flip, bias, dtype) -> None:
    x = torch.linspace(0.5, 2, 12, dtype=dtype).reshape(4, 3)
    given = None if bias is None else bias.to(dtype)
    same(loaded, mix, x=x, bias=given, power=2, scale=0.3, flip=flip)
    same(loaded, mix, x=x[:1], bias=given, power=1, scale=-7.0, flip=flip)


def test_a_complex_gradient_is_the_conjugate_that_jax_wants(loaded) -> None:
    x, y = jnp.array([1 + 2j, 3j]), jnp.array([2 - 1j, 1 + 1j])
    # JAX: the derivative of a holomorphic function is its complex derivative.
    found = jax.grad(lambda x: loaded.ops.turn(x, y).sum(), holomorphic=True)(x)
    assert found.tolist() == y.tolist()
    same(loaded, turn, x=torch.randn(4, dtype=torch.complex64), y=torch.ones(4) * (2 - 1j))


def test_what_is_declared_non_differentiable_gets_no_gradient(loaded) -> None:
    x = jnp.ones(3)
    assert jax.grad(lambda y: loaded.ops.turn(x, y).sum())(x).tolist() == [0, 0, 0]


def test_a_gradient_wrong_by_one_percent_is_found_in_half(tmp_path: Path) -> None:
    @opsmith.op("jax_test::off")
    def off(x: Float[Tensor, "N"], y: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x * y

    @off.register_autograd(setup_context=save)
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        # Wrong where JAX's is derived from it, right in PyTorch.
        traced = type(grad) is not Tensor and grad.dtype is torch.float16
        return grad * y * (1.01 if traced else 1), grad * x

    (tmp_path / "off.cpp").write_text(TURN.replace("turn", "off").replace("complex64", "bfloat16"))
    off.register_kernel("cpu", source=tmp_path / "off.cpp", flags=("-O0",))
    report = checks.run(off, select=["gradient", "jax-gradient"], examples=12)
    rows = {row.check: row for row in report.rows}
    assert rows["gradient"].status == "passed", rows["gradient"].message
    assert rows["jax-gradient"].status == "failed"
    assert "in JAX: the gradient of 'x'[" in rows["jax-gradient"].message
    assert "(float16)" in rows["jax-gradient"].message


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


def test_of_many_conditions_a_refusal_names_the_short_ones_of_the_nearest_path() -> None:
    from opsmith.targets.jax.package.derivative import Variant, kinds_of

    @opsmith.op("jax_test::windows")
    def windows(x: Float[Tensor, "N"], k: int) -> Float[Tensor, "N"]:
        return x

    arguments = {"x": jnp.ones(3), "k": 2}

    def path(*broken: str) -> Variant:
        conditions = [(text, lambda x, k: False, False) for text in broken]
        kinds = kinds_of(windows.signature, arguments)
        return Variant(kinds, [("k > 0", lambda x, k: k > 0, False), *conditions], print)

    far = path(*(f"k//{n} + x.shape[0] > {n}" for n in range(6)))
    near = path("max(1, k//2) == k//2", "k == 5", "(x.shape[0]*(k//2)) > 7", "k//2 > 1")
    paths = ByReference(windows.signature, [far, near])
    with pytest.raises(opsmith.errors.DifferentiationError) as caught:
        paths.choose(arguments, [arguments["x"], 2])
    assert str(caught.value) == (
        "jax_test::windows: its derivative was translated for calls where max(1, k//2) == k//2 and "
        "k == 5 and k//2 > 1 (and 1 more condition). Register a case like this call "
        "(register_cases) and export again."
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


def test_an_operator_without_a_gradient_says_so(tmp_path: Path) -> None:
    @opsmith.op("jax_test::plain")
    def plain(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x + 1

    assert derivative(plain) == (
        "has no gradient. Register one with plain.register_autograd(backward, setup_context=...), "
        'or declare it with autograd="reference", and export again.'
    )


def test_what_cannot_be_traced_is_named_with_the_operator_and_the_line() -> None:
    @torch.library.custom_op("jax_test::spectrum", mutates_args=())
    def spectrum(x: Tensor) -> Tensor:
        return x.clone()

    @spectrum.register_fake
    def _(x: Tensor) -> Tensor:
        raise RuntimeError("Cannot call numel() on tensor with symbolic sizes/strides.\nMore.")

    @opsmith.op("jax_test::by_spectrum", autograd="reference")
    def by_spectrum(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        return spectrum(x)

    line = by_spectrum.reference.__code__.co_firstlineno - 2  # the last of this file: the raise
    file = Path(__file__).relative_to(Path.cwd())
    assert derivative(by_spectrum) == (
        "has no gradient in JAX: its reference cannot be traced, in jax_test::spectrum "
        f"({file}:{line}): RuntimeError: Cannot call numel() on tensor with symbolic sizes/strides."
    )
