"""Gradients in JAX: from the operator's backward, from its reference, or refused with a reason."""

from __future__ import annotations

import gc
import itertools
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
import torch
from jaxtyping import Float, Float32, Float64, Inexact, Int64
from torch import Tensor
from torch._subclasses import functional_tensor
from torch.nn import functional

import opsmith
from gallery.bev_pool_v2.bev_pool_v2 import bev_pool_v2
from gallery.my_add.my_add import my_add
from opsmith import checks
from opsmith.checks.gradients import leaves_of
from opsmith.targets.jax import proofs
from opsmith.targets.jax.derivatives import derivative
from opsmith.targets.jax.derivatives.translate import _Translation
from opsmith.targets.jax.export import Exported, _note
from opsmith.targets.jax.runner import wide

jax = pytest.importorskip("jax")
jnp = jax.numpy

from opsmith.targets.jax.package import aten  # noqa: E402
from opsmith.targets.jax.package.derivative import (  # noqa: E402
    ByHand,
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
    from opsmith.targets.jax.package.derivative import ByReference, Variant, kinds_of

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


def test_a_branch_on_sizes_that_are_neither_zero_nor_one_is_a_path_of_its_own() -> None:
    @opsmith.op("jax_test::grouped", autograd="reference")
    def grouped(x: Float[Tensor, "N"], w: Float[Tensor, "M"]) -> Float[Tensor, "N"]:
        return x * (2 if x.shape[0] // w.shape[0] == 1 else 3)

    @grouped.register_cases(only=True)
    def cases(dtype: torch.dtype, seed: int) -> Any:
        for sizes in ((4, 4), (4, 2), (6, 3)):
            x, w = (torch.ones(size, dtype=dtype) for size in sizes)
            yield {"x": x, "w": w}

    found = derivative(grouped)
    assert not isinstance(found, str)
    bodies = {re.search(r"mul\(x, (\d)\)", path.body[0])[1] for path in found.paths}
    assert bodies == {"2", "3"}


@opsmith.op("jax_test::framed", autograd="reference")
def framed(x: Float[Tensor, "N M"], by: int = 2) -> Float[Tensor, "N+3 M+{by}-2"]:
    return functional.pad(x, (by, -2, 0, 3), value=0.5) * x.sum()


@framed.register_cases(only=True)
def framed_cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    for by, rows in itertools.product((2, 0, -1), (4, 1, 0)):
        yield {"x": torch.ones(rows, 7, dtype=dtype), "by": by}


def test_padding_fixes_no_size() -> None:
    found = derivative(framed)
    assert not isinstance(found, str) and not found.lacking
    texts = [text for path in found.paths for text, _ in path.conditions]
    assert not [text for text in texts if re.fullmatch(r"x\.shape\[.\] == [^01]", text)], texts


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


@pytest.mark.parametrize("rows", [0, 1, 6])
@pytest.mark.parametrize("by", [-1, 0, 3])
def test_padding_has_the_gradient_of_the_reference(rows: int, by: int) -> None:
    same_by_reference(framed, torch.randn(rows, 5), by=by)


@pytest.mark.parametrize(("size", "hop"), [(1, 1), (3, 2), (6, 5)])
def test_windows_of_any_size_have_the_gradient_of_the_reference(size: int, hop: int) -> None:
    @opsmith.op("jax_test::windows", autograd="reference")
    def windows(
        x: Float32[Tensor, "N M"],
        size: Annotated[int, opsmith.Between(1, "N")],
        hop: Annotated[int, opsmith.Between(1, 5)],
    ) -> Float32[Tensor, "(N-{size})//{hop}+1 M {size}"]:
        return x.unfold(0, size, hop) * 2

    same_by_reference(windows, torch.randn(9, 2), size=size, hop=hop)


def test_every_choice_has_a_path() -> None:
    @opsmith.op("jax_test::reduced", autograd="reference")
    def reduced(
        x: Float32[Tensor, "N M"], bias: Float32[Tensor, "N"] | None, mode: Literal["sum", "mean"]
    ) -> Float32[Tensor, "N"]:
        found = x.sum(1) if mode == "sum" else x.mean(1)
        return found if bias is None else found + bias

    found = derivative(reduced)
    assert not isinstance(found, str), found
    taken = {(kinds[1] is None, kinds[2]) for path in found.paths for kinds in path.kinds}
    assert taken == set(itertools.product((True, False), ("sum", "mean")))


def _kernel(x: Tensor) -> Tensor:
    return (torch.arange(54, dtype=x.dtype) / 27 - 1).reshape(6, 1, 3, 3)


#: What references are often made of, beside arithmetic.
STEPS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda x: x.softmax(-1),
    "attention": lambda x: (x @ x.transpose(-1, -2) * x.shape[-1] ** -0.5).softmax(-1) @ x,
    "square root": lambda x: x / math.sqrt(x.shape[-1]),
    "einsum of three": lambda x: torch.einsum("abcd,cd,ab->bcd", x, x.sum((0, 1)), x[..., 0, 0]),
    "log_softmax": lambda x: x.log_softmax(1),
    "logsumexp": lambda x: x.logsumexp((1, 2)),
    "length": lambda x: x.sum((1, 2, 3)) * torch.arange(len(x)),
    "repeats": lambda x: torch.repeat_interleave(
        x, torch.full((len(x),), 2), 0, output_size=2 * len(x)
    ),
    "unfold": lambda x: x.unfold(-2, 3, 2),
    "bucketize": lambda x: x * torch.bucketize(x, torch.arange(-2.0, 2.0), right=True),
    "layer_norm": lambda x: functional.layer_norm(x, x.shape[-1:]),
    "group_norm": lambda x: functional.group_norm(x, 2),
    "norm": lambda x: x.norm(dim=1),
    "std": lambda x: x.std((1, 2)),
    "var_mean": lambda x: sum(torch.var_mean(x, 2, correction=0, keepdim=True)),
    "max": lambda x: x.max(2)[0] * x.max(),
    "min": lambda x: x.min(3, keepdim=True)[0],
    "sort": lambda x: x.sort(1, descending=True)[0] * torch.arange(x.shape[1]).reshape(-1, 1, 1),
    "topk": lambda x: x.topk(2, -1, largest=False)[0],
    "cumprod": lambda x: x.cumprod(1),
    "diagonal": lambda x: x.diagonal(1, -2, -1),
    "max_pool": lambda x: functional.max_pool2d(x, 2),
    "circular": lambda x: functional.pad(x, (1, 2, 0, 1), mode="circular"),
    "copy": lambda x: torch.empty_like(x).copy_(x.sum(0)) * x,
    "convolution": lambda x: functional.conv2d(
        x.mean(1, keepdim=True), _kernel(x), None, 2, 1, (1, 2)
    ),
    "transposed": lambda x: functional.conv_transpose2d(
        torch.cat([x[:, :1], x[:, 1:2] * 2], 1).repeat(1, 3, 1, 1),
        _kernel(x).repeat(1, 2, 1, 1),
        x.new_ones(4),
        (2, 1),
        (1, 2),
        output_padding=(1, 0),
        groups=2,
        dilation=(1, 2),
    ),
    "grid_sample": lambda x: functional.grid_sample(
        x, x[:, :2, :2, :2].sigmoid().permute(0, 2, 3, 1), align_corners=False
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_of_a_reference_has_its_value_and_gradient(name: str) -> None:
    step = STEPS[name]

    @opsmith.op(f"jax_test::step_{name.replace(' ', '_')}", autograd="reference")
    def stepped(x: Float64[Tensor, "N C H W"]) -> Float64[Tensor, ""]:
        # In double precision, as terms that cancel may leave little more than rounding.
        found = step(x)
        # So that no two elements of its result count alike.
        weights = torch.arange(found.numel(), dtype=torch.float64).cos()
        return (found * weights.reshape(found.shape)).sum()

    @stepped.register_cases(only=True)
    def cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
        yield {"x": torch.randn(2, 4, 6, 7, dtype=torch.float64)}

    same_by_reference(stepped, torch.randn(3, 6, 5, 8, dtype=torch.float64))


def test_softmax_of_nothing() -> None:
    @opsmith.op("jax_test::weighed_by_softmax", autograd="reference")
    def weighed(x: Float32[Tensor, "N M"]) -> Float32[Tensor, "N"]:
        return (x.softmax(-1) * x).sum(-1)

    same_by_reference(weighed, torch.zeros(3, 0))
    same_by_reference(weighed, torch.zeros(0, 3))


def test_a_dtype_that_takes_the_steps_of_another_is_traced_once(monkeypatch) -> None:
    traced = _traced(monkeypatch)
    found = derivative(mix)
    assert not isinstance(found, str)
    dtypes = [given["x"].dtype for given in traced]
    assert dtypes.count(torch.float32) > 1
    assert dtypes.count(torch.float16) == dtypes.count(torch.bfloat16) == 1
    # PyTorch's own operators ask other things in half precision, which takes the same paths.
    for path in found.paths:
        taken = {kinds[0][1] for kinds in path.kinds}
        assert "float32" not in taken or taken == {"float16", "bfloat16", "float32", "float64"}


def test_a_dtype_that_the_steps_name_makes_no_trace_of_its_own(monkeypatch) -> None:
    @opsmith.op("jax_test::topped", autograd="reference")
    def topped(x: Float[Tensor, "N"], twice: bool) -> Float[Tensor, "N+1"]:
        return torch.cat([x, x.new_zeros(1)]) * (2 if twice else 1)

    traced = _traced(monkeypatch)
    found = derivative(topped)
    assert not isinstance(found, str)
    dtypes = [given["x"].dtype for given in traced]
    assert dtypes.count(torch.float32) >= 2
    assert dtypes.count(torch.float64) == dtypes.count(torch.bfloat16) == 1
    named = {
        (*kinds[0], kinds[1], *re.findall(r"'(\w*float\d+)'", "\n".join(path.body)))
        for path in found.paths
        for kinds in path.kinds
    }
    every = ("float16", "bfloat16", "float32", "float64")
    assert named >= {(1, name, twice, name) for name in every for twice in (False, True)}
    assert all(kind == name for _, kind, _, name in named)


def test_a_dtype_takes_the_paths_of_the_one_whose_steps_it_has(monkeypatch) -> None:
    @opsmith.op("jax_test::coarse")
    def coarse(x: Float[Tensor, "N"], twice: bool) -> Float[Tensor, "N"]:
        return x * (2 if twice else 1)

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.twice = inputs[1]

    @coarse.register_autograd(setup_context=setup_context)
    def backward(ctx: Any, grad: Tensor) -> Any:
        grad = grad.float() if grad.dtype in (torch.float16, torch.bfloat16) else grad
        return grad * (2 if ctx.twice else 1), None

    traced = _traced(monkeypatch)
    found = derivative(coarse)
    assert not isinstance(found, str)
    dtypes = [given["x"].dtype for given in traced]
    assert dtypes.count(torch.float16) > dtypes.count(torch.bfloat16) == 1
    widened = {
        (kinds[0][1], kinds[1])
        for path in found.paths
        for kinds in path.kinds
        if "'float32'" in "\n".join(path.body)
    }
    assert widened == {(name, twice) for name in ("float16", "bfloat16") for twice in (False, True)}


@pytest.mark.parametrize("limit", [True, False])
def test_a_dtype_with_limits_of_its_own_takes_them_into_every_path_of_another(
    monkeypatch, limit: bool
) -> None:
    def bound(dtype: torch.dtype) -> float:
        if limit:
            return torch.finfo(dtype).max
        return 7.0 if dtype == torch.float16 else 5.0

    def body(x: Float[Tensor, "N"], twice: bool) -> Float[Tensor, "N"]:
        return x.clamp(max=bound(x.dtype)) * (2.0 if twice else 1.0)

    limited = opsmith.op(f"jax_test::limited_{limit}", autograd="reference")(body)
    traced = _traced(monkeypatch)
    found = derivative(limited)
    assert not isinstance(found, str)
    # Any other number may be there for a reason that another path does not have.
    assert ([given["x"].dtype for given in traced].count(torch.float16) == 1) is limit
    bounds = {
        (kinds[0][1], kinds[1], number)
        for path in found.paths
        for kinds in path.kinds
        for number in re.findall(r"clamp\(.*?([\d.]+(?:e[+-]?\d+)?)\)", "\n".join(path.body))
    }
    assert bounds == {
        (name, twice, repr(bound(getattr(torch, name))))
        for name in ("float16", "bfloat16", "float32", "float64")
        for twice in (False, True)
    }


def test_what_pytorchs_kernels_ask_of_sizes_makes_no_condition() -> None:
    @opsmith.op("jax_test::squared", autograd="reference")
    def squared(x: Float32[Tensor, "B N M"]) -> Float32[Tensor, "B N N"]:
        return x @ x.transpose(-1, -2)

    found = derivative(squared)
    assert not isinstance(found, str)
    assert found.paths[0].conditions
    assert all(minor for _, minor in found.paths[0].conditions)


def test_a_call_that_takes_a_known_path_is_not_traced_again(monkeypatch) -> None:
    @opsmith.op("jax_test::halved", autograd="reference")
    def halved(x: Float32[Tensor, "N"], w: Float32[Tensor, "M"]) -> Float32[Tensor, "N"]:
        return x * 2

    @halved.register_cases
    def cases(dtype: torch.dtype, seed: int) -> Any:
        # Nothing is asked of `w`, so that its sizes make no path.
        for length in (5, 1, 0):
            yield {"x": torch.ones(5), "w": torch.ones(length)}

    traced = _traced(monkeypatch)
    derivative(halved)
    sizes = [(len(given["x"]), len(given["w"])) for given in traced]
    assert (5, 5) in sizes
    assert (5, 0) not in sizes


def test_steps_that_write_into_nothing_are_taken_as_they_are(monkeypatch) -> None:
    @opsmith.op("jax_test::summed", autograd="reference")
    def summed(x: Float32[Tensor, "N M"]) -> Float32[Tensor, "N"]:
        return (x.reshape(-1).detach() + x.T.reshape(-1)).view(x.shape).sum(1)

    @opsmith.op("jax_test::filled", autograd="reference")
    def filled(x: Float32[Tensor, "N M"]) -> Float32[Tensor, "N M"]:
        out = torch.zeros_like(x)
        out[:, 1:].view_as(x[:, 1:]).add_(x[:, 1:])
        return out

    functional: list[Any] = []
    mode = functional_tensor.dispatch_functionalize
    monkeypatch.setattr(
        functional_tensor,
        "dispatch_functionalize",
        lambda *given: functional.append(given) or mode(*given),
    )
    assert not isinstance(derivative(summed), str)
    assert not functional
    traced = _traced(monkeypatch)
    found = derivative(filled)
    assert not isinstance(found, str)
    # The first call tells of all.
    assert len(functional) == len(traced)
    same_by_reference(filled, torch.rand(3, 4))


def test_no_garbage_is_collected_during_a_trace() -> None:
    collects: list[bool] = []

    @opsmith.op("jax_test::tidy", autograd="reference")
    def tidy(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        collects.append(gc.isenabled())
        return x * 2

    assert not isinstance(derivative(tidy), str)
    assert collects
    assert not any(collects)
    assert gc.isenabled()


def _traced(monkeypatch) -> list[dict[str, Any]]:
    """The calls in which derivatives are traced from now on."""
    calls: list[dict[str, Any]] = []
    trace = _Translation._trace

    def noted(self: _Translation, arguments: dict[str, Any]) -> Any:
        calls.append(arguments)
        return trace(self, arguments)

    monkeypatch.setattr(_Translation, "_trace", noted)
    return calls


def test_a_fixed_dtype_stays_where_a_path_serves_every_generic_one() -> None:
    @opsmith.op("jax_test::weighed", autograd="reference")
    def weighed(
        x: Float[Tensor, "N"], w: Float32[Tensor, "N"], more: list[Float[Tensor, "N"]]
    ) -> Float[Tensor, "N"]:
        return x * w.to(x.dtype) + sum(more)

    found = derivative(weighed)
    assert not isinstance(found, str)
    kinds = {kinds for path in found.paths for kinds in path.kinds}
    one, fixed = (1, "float16"), (1, "float32")
    assert (one, fixed, (one,)) in kinds
    assert all(w == fixed for _, w, _ in kinds)


def test_a_cast_that_one_dtype_alone_needs_is_translated_for_it() -> None:
    @opsmith.op("jax_test::summed", autograd="reference")
    def summed(x: Float[Tensor, "N"]) -> Float[Tensor, ""]:
        return x.float().sum().to(x.dtype)

    found = derivative(summed)
    assert not isinstance(found, str)
    bodies = {kinds[0][1]: "\n".join(path.body) for path in found.paths for kinds in path.kinds}
    assert "float32" not in bodies["float32"]
    assert "'float32'" in bodies["float16"]


def test_a_conjugate_is_translated_where_numbers_are_complex() -> None:
    found = derivative(turn)
    assert not isinstance(found, str)
    bodies = {kinds[0][1]: "\n".join(path.body) for path in found.paths for kinds in path.kinds}
    assert "conj" in bodies["complex64"]
    assert "conj" not in bodies["float32"]


def test_a_call_of_another_kind_is_told_what_it_is() -> None:
    paths = ByHand(mix.signature, [])
    given = {"x": jnp.ones((2, 3)), "bias": None, "power": 2, "scale": 1.0, "flip": True}
    with pytest.raises(opsmith.errors.DifferentiationError) as caught:
        paths(given, (), ())
    assert str(caught.value) == (
        "jax_test::mix: its derivative was translated for calls with other dtypes, numbers of "
        "dimensions, absent arguments, bools or texts than this one (float32 of 2 dimensions, "
        "None, a number, a number, True). Register a case like this call (register_cases) and "
        "export again."
    )


def test_a_condition_that_divides_by_zero_does_not_hold() -> None:
    @opsmith.op("jax_test::parts", autograd="reference")
    def parts(x: Float[Tensor, "N"], k: int) -> Float[Tensor, "N"]:
        return x * 2 if x.shape[0] % k == 0 else x * 3

    conditions = [("x.shape[0] % k == 0", lambda x, k: x.shape[0] % k == 0, False)]
    variant = Variant(((1, "float32"), "number"), conditions, lambda *inputs: None)
    paths = ByHand(parts.signature, [variant])
    with pytest.raises(
        opsmith.errors.DifferentiationError, match=r"where x.shape.0. % k == 0. Reg"
    ):
        paths({"x": jnp.ones(4), "k": 0}, (), ())


def test_an_operator_without_a_gradient_says_so(tmp_path: Path) -> None:
    @opsmith.op("jax_test::plain")
    def plain(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x + 1

    assert derivative(plain) == (
        "has no gradient. Register one with plain.register_autograd(backward, setup_context=...), "
        'or declare it with autograd="reference", and export again.'
    )


def test_what_cannot_be_translated_for_some_calls_is_noted() -> None:
    @opsmith.op("jax_test::partly", autograd="reference")
    def partly(x: Float[Tensor, "N"], odd: bool) -> Float[Tensor, "N"]:
        return torch.special.bessel_j0(x) if odd else x * 2

    found = derivative(partly)
    assert not isinstance(found, str)
    assert {kinds[1] for path in found.paths for kinds in path.kinds} == {False}
    assert _note(Exported(partly, "partly", Path(), found)) == (
        "gradient by its reference; not for every call: for some, it uses "
        "aten::special_bessel_j0, which has no translation to JAX"
    )


@pytest.mark.parametrize("branches", [False, True])
def test_what_reads_values_has_no_gradient_not_even_in_calls_so_small_that_none_are(
    branches: bool,
) -> None:
    @opsmith.op("jax_test::segments", autograd="reference")
    def segments(x: Float[Tensor, "N"], ends: Int64[Tensor, "E"], even: bool) -> Float[Tensor, "E"]:
        if even:
            return x.sum() * torch.ones_like(ends, dtype=x.dtype)
        sums = [x[:end].sum() if not branches or end > 0 else x[0] for end in ends.tolist()]
        return torch.stack(sums) if sums else x.new_zeros(0)

    @segments.register_cases
    def cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
        for ends, even in itertools.product(([], [1, 2]), (True, False)):
            x, indices = torch.ones(3, dtype=dtype), torch.tensor(ends, dtype=torch.int64)
            yield {"x": x, "ends": indices, "even": even}

    found = derivative(segments)
    assert not isinstance(found, str)
    assert {kinds[2] for path in found.paths for kinds in path.kinds} == {True}
    place = r" \(\S*test_gradients.py:\d+\)" if branches else ""
    assert re.fullmatch(f"reads values of its arguments{place}", found.lacking)


def test_what_cannot_be_translated_is_named() -> None:
    @opsmith.op("jax_test::masked", autograd="reference")
    def masked(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return torch.where(x > 0, x, torch.special.bessel_j0(x))

    assert derivative(masked) == (
        "has no gradient in JAX: its reference uses aten::special_bessel_j0, which has no "
        "translation to JAX."
    )
