"""The paths of a derivative for JAX: which calls are traced, and what each path is for."""

from __future__ import annotations

import gc
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from derived import mix, same_by_reference, turn
from jaxtyping import Float, Float32, Int64
from torch import Tensor
from torch._subclasses import functional_tensor

import opsmith
from opsmith.targets.jax.derivatives import derivative
from opsmith.targets.jax.derivatives.translate import _Translation
from opsmith.targets.jax.export import JaxFunction, _note

pytestmark = pytest.mark.slow

jax = pytest.importorskip("jax")
jnp = jax.numpy

from opsmith.targets.jax.package.derivative import (  # noqa: E402
    ByHand,
    Variant,
)


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
        return torch.finfo(dtype).resolution if dtype == torch.float16 else 5.0

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


def test_a_registered_case_without_elements_has_a_path() -> None:
    @opsmith.op("jax_test::levels", autograd="reference")
    def levels(x: Float[Tensor, "N L P"]) -> Float[Tensor, "N L*P"]:
        return (x * x).flatten(1)

    @levels.register_cases(only=True)
    def cases(dtype: torch.dtype, seed: int) -> Any:
        for sizes in ((2, 3, 5), (1, 0, 2)):
            yield {"x": torch.ones(sizes, dtype=dtype)}

    found = derivative(levels)
    assert not isinstance(found, str)
    assert not found.lacking
    same_by_reference(levels, torch.ones(1, 0, 2))


def test_every_registered_case_has_a_path_however_many_there_are() -> None:
    @opsmith.op("jax_test::degree", autograd="reference")
    def degree(x: Float32[Tensor, "N"], k: int) -> Float32[Tensor, "N"]:
        return x * 2 if k == 0 else x * 3 if k % 2 == 0 else x.pow(k)

    @degree.register_cases(only=True)
    def cases(dtype: torch.dtype, seed: int) -> Any:
        for k in range(30):
            yield {"x": torch.ones(3), "k": k}

    found = derivative(degree)
    assert not isinstance(found, str)
    for k in (0, 28, 29):
        same_by_reference(degree, torch.rand(3), k=k)


def test_a_registered_case_that_has_no_path_is_not_asked_for_again() -> None:
    @opsmith.op("jax_test::bessel", autograd="reference")
    def bessel(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        return torch.special.bessel_j0(x) if x.shape[0] == 1 else x * 2

    @bessel.register_cases(only=True)
    def cases(dtype: torch.dtype, seed: int) -> Any:
        for size in (3, 1):
            yield {"x": torch.ones(size)}

    found = derivative(bessel)
    assert not isinstance(found, str)
    paths = ByHand(bessel.signature, [], found.hindered)
    with pytest.raises(opsmith.errors.DifferentiationError) as caught:
        paths({"x": jnp.ones(1)}, (), ())
    assert str(caught.value) == (
        "jax_test::bessel: has no gradient in JAX for a call like this, which is registered "
        "(register_cases): its reference uses aten::special_bessel_j0, which has no translation to "
        "JAX."
    )


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


def test_what_cannot_be_translated_for_some_calls_is_noted() -> None:
    @opsmith.op("jax_test::partly", autograd="reference")
    def partly(x: Float[Tensor, "N"], odd: bool) -> Float[Tensor, "N"]:
        return torch.special.bessel_j0(x) if odd else x * 2

    found = derivative(partly)
    assert not isinstance(found, str)
    assert {kinds[1] for path in found.paths for kinds in path.kinds} == {False}
    assert _note(JaxFunction(partly, "partly", Path(), found)) == (
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
    place = r" \(\S*test_paths.py:\d+\)" if branches else ""
    assert re.fullmatch(f"reads values of its arguments{place}", found.lacking)


def test_values_are_read_in_rows_under_a_transform_too() -> None:
    @opsmith.op("jax_test::pulled", autograd="reference")
    def pulled(
        grad: Float[Tensor, "N"], x: Float[Tensor, "N"], sizes: Int64[Tensor, "L 2"]
    ) -> Float[Tensor, "N"]:
        def scaled(x: Tensor) -> Tensor:
            return x * sum(int(h) * int(w) for h, w in sizes.tolist())

        return torch.func.vjp(scaled, x)[1](grad)[0]

    assert re.fullmatch(
        r"has no gradient in JAX: its reference reads values of its arguments "
        r"\(\S*test_paths.py:\d+\)\.",
        str(derivative(pulled)),
    )


def test_what_cannot_be_translated_is_named() -> None:
    @opsmith.op("jax_test::masked", autograd="reference")
    def masked(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return torch.where(x > 0, x, torch.special.bessel_j0(x))

    assert derivative(masked) == (
        "has no gradient in JAX: its reference uses aten::special_bessel_j0, which has no "
        "translation to JAX."
    )
