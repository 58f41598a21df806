"""A declared backward is recorded without Python, and autograd sees what it sees of its own."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import numpy
import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith.operators.dispatch.gates import autograd_gate

pytestmark = pytest.mark.slow(cases=2)

KERNEL = """
#include <opsmith/kernel.h>
#include "scaled.h"
template <typename T>
void scaled(const opsmith::Context&, const recorded::scaled_args<T>& a) {
  for (int64_t n = 0; n < a.N; ++n) {
    a.out1[n] = a.x[n] + (a.shift ? a.shift[n] : T(0));
    a.out0[n] = static_cast<T>(a.factor) * a.w[n] * a.x[n] * a.x[n];
  }
}
OPSMITH_KERNEL(recorded, scaled, cpu, float, double)
"""


@opsmith.op("recorded::scaled")
def scaled(
    x: Float[Tensor, "N"],
    w: Float[Tensor, "N"],
    shift: Float[Tensor, "N"] | None = None,
    factor: float = 2.0,
) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"]]:
    return factor * w * x * x, x + (0 if shift is None else shift)


@opsmith.op("recorded::scaled_backward", autograd="reference")
def scaled_backward(
    grad_out0: Float[Tensor, "N"],
    grad_out1: Float[Tensor, "N"],
    x: Float[Tensor, "N"],
    w: Float[Tensor, "N"],
    shift: Float[Tensor, "N"] | None,
    factor: float,
    twice: int = 2,
) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"], Float[Tensor, "N"]]:
    grad_x = twice * factor * w * x * grad_out0 + grad_out1
    return grad_x, factor * x * x * grad_out0, grad_out1.clone()


@opsmith.op("recorded::square_root")
def square_root(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x.sqrt()


@opsmith.op("recorded::square_root_backward")
def square_root_backward(
    grad: Float[Tensor, "N"], result: Float[Tensor, "N"]
) -> Float[Tensor, "N"]:
    return grad / (2 * result)


scaled.register_backward(scaled_backward, grads={"x": 0, "w": 1, "shift": 2})
square_root.register_backward(square_root_backward, grads={"x": 0})


@pytest.fixture(scope="module", autouse=True)
def _built(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("recorded")
    root = KERNEL.replace("scaled", "square_root")
    body = root[: root.index("  for")] + (
        "  for (int64_t n = 0; n < a.N; ++n) a.out[n] = std::sqrt(a.x[n]);\n}\n"
    )
    for name, text in (
        ("scaled", KERNEL),
        ("square_root", f"#include <cmath>\n{body}{root[root.index('OPSMITH_KERNEL') :]}"),
    ):
        path = Path(folder, f"{name}.cpp")
        path.write_text(text)
        operator = globals()[name]
        operator.register_kernel("cpu", source=path, flags=("-O0",))
        operator.build()


def values(**changes) -> dict:
    made = {
        "x": torch.rand(4, dtype=torch.float64, requires_grad=True),
        "w": torch.rand(4, dtype=torch.float64, requires_grad=True),
        "shift": torch.rand(4, dtype=torch.float64, requires_grad=True),
        "factor": 1.5,
    }
    return {**made, **changes}


def loss(function, given: dict) -> Tensor:
    one, other = function(**given)
    return (one.sin() * other).sum()


def test_no_python_runs_when_a_call_is_recorded() -> None:
    one, other = scaled(**values())
    assert type(one.grad_fn).__name__ == "CppFunction"
    assert one.grad_fn.name() == "recorded_scaledBackward"
    assert one.grad_fn is other.grad_fn
    with torch.no_grad():
        assert scaled(**values())[0].grad_fn is None
    plain = {name: v.detach() if isinstance(v, Tensor) else v for name, v in values().items()}
    assert scaled(**plain)[0].grad_fn is None


@pytest.mark.parametrize("wanted", [("x",), ("w",), ("x", "w", "shift")])
@pytest.mark.parametrize("shift", [True, False])
def test_gradients_are_those_of_the_reference(wanted: tuple[str, ...], shift: bool) -> None:
    given = values() if shift else values(shift=None)
    leaves = [given[name] for name in wanted if given[name] is not None]
    found = torch.autograd.grad(loss(scaled, given), leaves)
    torch.testing.assert_close(found, torch.autograd.grad(loss(scaled.reference, given), leaves))


def test_a_result_that_nobody_uses_has_a_gradient_of_zero() -> None:
    given = values()
    for position in (0, 1):
        found = torch.autograd.grad(scaled(**given)[position].sum(), given["x"])
        right = torch.autograd.grad(scaled.reference(**given)[position].sum(), given["x"])
        torch.testing.assert_close(found, right)


def test_a_result_is_saved_without_keeping_the_call_alive() -> None:
    x = torch.rand(3, requires_grad=True)
    out = square_root(x)
    torch.testing.assert_close(torch.autograd.grad(out.sum(), x)[0], 0.5 / out.detach())
    # Whatever the call holds goes with it: a result that held itself would hold its edges too.
    memory = numpy.ones(3, dtype=numpy.float32)
    watched = weakref.ref(memory)
    leaf = torch.from_numpy(memory).requires_grad_()
    out = square_root(leaf)
    del memory, leaf, out
    gc.collect()
    assert watched() is None


def test_the_second_derivative_is_that_of_the_backward() -> None:
    given = values(shift=None)
    names = ("x", "w")

    def function(*leaves: Tensor) -> Tensor:
        return loss(scaled, {**given, **dict(zip(names, leaves, strict=True))})

    assert torch.autograd.gradcheck(function, [given[name] for name in names])
    assert torch.autograd.gradgradcheck(function, [given[name] for name in names])


def test_a_second_backward_says_how_to_allow_it() -> None:
    given = values()
    total = loss(scaled, given)
    total.backward(retain_graph=True)
    total.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        total.backward()


def test_a_saved_tensor_that_was_overwritten_is_noticed() -> None:
    given = values()
    x = given["x"].clone()
    total = loss(scaled, {**given, "x": x})
    with torch.no_grad():
        x.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()


def test_hooks_on_saved_tensors_see_them() -> None:
    given, packed = values(), []

    def pack(tensor: Tensor) -> Tensor:
        packed.append(tensor)
        return tensor.clone()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        one, _ = scaled(**given)
    assert packed[0] is given["x"]
    assert packed[1] is given["w"]
    assert packed[2] is given["shift"]
    one.sum().backward()
    torch.testing.assert_close(
        given["x"].grad, (2 * given["factor"] * given["w"] * given["x"]).detach()
    )


@pytest.mark.parametrize("transform", ["compile", "grad", "vjp", "jacrev", "vmap", "checkpoint"])
def test_it_works_in_transforms(transform: str) -> None:
    given = values(shift=None)
    x, w = given["x"].detach(), given["w"].detach()

    def of(function):
        return lambda x: loss(function, {"x": x, "w": w, "shift": None, "factor": 1.5})

    right = torch.func.grad(of(scaled.reference))(x)
    if transform in ("compile", "checkpoint"):
        from torch.utils.checkpoint import checkpoint

        leaf = x.clone().requires_grad_()
        if transform == "compile":
            torch.compile(of(scaled), fullgraph=True, backend="aot_eager")(leaf).backward()
        else:
            checkpoint(of(scaled), leaf, use_reentrant=False).backward()
        found = leaf.grad
    elif transform == "grad":
        found = torch.func.grad(of(scaled))(x)
    elif transform == "vjp":
        found = torch.func.vjp(of(scaled), x)[1](torch.tensor(1.0, dtype=x.dtype))[0]
    elif transform == "jacrev":
        found = torch.func.jacrev(lambda x: of(scaled)(x)[None])(x)[0]
    else:
        found = torch.func.vmap(torch.func.grad(of(scaled)))(torch.stack([x, x]))[1]
    torch.testing.assert_close(found, right)


def test_forward_mode_is_refused_as_without_it() -> None:
    x = torch.rand(3)
    with pytest.raises(opsmith.DifferentiationError, match="has no forward-mode derivative"):
        torch.func.jvp(lambda x: scaled(x, x)[0], (x,), (x,))


def test_another_backward_takes_its_place() -> None:
    x = torch.rand(3, requires_grad=True)
    try:
        square_root.register_autograd(
            lambda ctx, grad: (7 * grad,), setup_context=lambda ctx, inputs, output: None
        )
        assert torch.autograd.grad(square_root(x).sum(), x)[0].tolist() == [7, 7, 7]
        assert type(square_root(x).grad_fn).__name__ != "CppFunction"
    finally:
        square_root.register_backward(square_root_backward, grads={"x": 0})
    torch.testing.assert_close(
        torch.autograd.grad(square_root(x).sum(), x)[0], 0.5 / x.detach().sqrt()
    )


def test_without_a_compiler_python_does_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    given = values()
    found = torch.autograd.grad(loss(scaled, given), given["x"])
    monkeypatch.setattr(autograd_gate, "load_recorder", lambda: None)
    scaled._registration.autograd_again(scaled)
    try:
        assert type(scaled(**given)[0].grad_fn).__name__ == "recorded_scaledBackward"
        torch.testing.assert_close(torch.autograd.grad(loss(scaled, given), given["x"]), found)
    finally:
        monkeypatch.undo()
        scaled._registration.autograd_again(scaled)
