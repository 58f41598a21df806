"""Adopted operators under torch.compile and torch.export."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from jaxtyping import Float
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd

import opsmith

_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    """An operator's name of this test's own: what adopting adds stays in the process."""
    return f"scaled_{next(_numbers)}"


@pytest.fixture
def foreign(name) -> Iterator[torch.library.Library]:
    """An operator of another library, with a kernel and nothing for tracing."""
    with torch.library._scoped_library("adopted_tracing", "FRAGMENT") as library:
        library.define(f"{name}(Tensor x, float factor) -> Tensor")
        library.impl(name, lambda x, factor: x * factor, "CPU")
        yield library


def adopt(name: str) -> Any:
    @opsmith.adopt(f"adopted_tracing::{name}")
    def scaled(x: Float[Tensor, "N C"], factor: float) -> Float[Tensor, "N C"]:
        return x * factor

    return scaled


def compiled(function: Any, *arguments: Tensor) -> tuple[Any, list[str]]:
    """What a fully captured call gives, and the operators that the graph calls."""
    called: list[str] = []

    def note(module: torch.fx.GraphModule, _: Any) -> Any:
        called.extend(str(n.target) for n in module.graph.nodes if n.op == "call_function")
        return module.forward

    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=note)
    return torch.compile(function, fullgraph=True, backend=backend)(*arguments), called


@pytest.mark.usefixtures("foreign")
def test_a_foreign_operator_without_a_fake_kernel_gets_one_from_the_declaration(name):
    foreign = getattr(torch.ops.adopted_tracing, name)

    def call(x: Tensor) -> Tensor:
        return foreign(x, 2.0).relu()

    with pytest.raises(torch._dynamo.exc.Unsupported, match="fake tensors"):
        compiled(call, torch.randn(2, 3))
    scaled = adopt(name)
    x = torch.randn(2, 3)
    result, called = compiled(call, x)
    assert torch.equal(result, call(x))
    assert any("adopted_tracing" in name for name in called)

    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return scaled(x, 3.0)

    rows = ({0: torch.export.Dim("rows")},)
    program = torch.export.export(Model(), (x,), dynamic_shapes=rows)
    y = torch.randn(5, 3)
    assert torch.equal(program.module()(y), y * 3)
    # Adopting again replaces what the first gave.
    adopt(name)
    compiled(call, x)


def test_a_fake_kernel_that_is_there_stays(foreign, name):
    calls = []

    def fake(x: Tensor, factor: float) -> Tensor:
        calls.append(1)
        return torch.empty_like(x)

    torch.library.register_fake(f"adopted_tracing::{name}", fake, lib=foreign)
    scaled = adopt(name)
    compiled(lambda x: scaled(x, 2.0), torch.randn(2, 3))
    assert calls


@pytest.mark.parametrize("takes_ctx", [True, False])
def test_apply_of_an_adopted_function_is_one_call_in_a_full_graph(takes_ctx):
    class Added(torch.autograd.Function):
        if takes_ctx:

            @staticmethod
            def forward(ctx, a, b, k: float = 2.0):
                ctx.k = k
                return k * a + b
        else:

            @staticmethod
            def forward(a, b, k: float = 2.0):
                return k * a + b

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.k = inputs[2]

        @staticmethod
        def backward(ctx, grad):
            return ctx.k * grad, grad, None

    name = f"adopted_tracing::added_{takes_ctx}"
    opsmith.adopt(Added, name)

    def call(a: Tensor, b: Tensor) -> Tensor:
        return Added.apply(a, b, 3.0).sin()

    a, b = torch.randn(2, 3, requires_grad=True), torch.randn(2, 3)
    result, called = compiled(call, a, b)
    assert torch.equal(result, call(a, b))
    assert any(name.replace("::", ".") in text for text in called), called
    (got,) = torch.autograd.grad(result.sum(), a)
    (expected,) = torch.autograd.grad(call(a, b).sum(), a)
    torch.testing.assert_close(got, expected)


@pytest.mark.usefixtures("foreign")
def test_aotinductor_says_that_an_adopted_operator_may_be_inlined(name, tmp_path):
    adopt(name)
    adopted = getattr(torch.ops.adopted_tracing, name)

    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return adopted(x, 2.0)

    with pytest.raises(opsmith.ExportError) as caught:
        opsmith.export(
            Model(), (torch.randn(2, 3),), target="aotinductor", out=tmp_path / "dist", say=None
        )
    message = str(caught.value)
    assert message.startswith(f"adopted_tracing::{name}: is ")
    inlined = f'form={{"adopted_tracing::{name}": "inline"}} to have its reference compiled'
    assert inlined in message
