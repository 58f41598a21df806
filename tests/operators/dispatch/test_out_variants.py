"""Results in memory that the call gives, from Python kernels and from compiled ones."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch._inductor.utils import run_and_get_code
from torch._library._out_variant import to_out_variant
from torch._subclasses import FakeTensorMode

import opsmith
from opsmith.errors import DeclarationError, DifferentiationError
from opsmith.operators.dispatch.gates import autograd_gate

KERNEL = """
#include <opsmith/kernel.h>
#include "spread.h"
template <typename T>
void spread(const opsmith::Context& ctx, const SPACE::spread_args<T>& a) {
  if (reinterpret_cast<uintptr_t>(&a.out0[0]) % 64 != 0) ctx.fail("the memory is not aligned");
  for (int64_t c = 0; c < a.C; ++c) a.out1[c] = 0;
  for (int64_t i = 0; i < a.N * a.C; ++i) {
    a.out0[i] = a.by * a.x[i] + (a.bias ? a.bias[i % a.C] : T(0));
    a.out1[i % a.C] += a.x[i];
  }
}
OPSMITH_KERNEL(SPACE, spread, cpu, float)
"""


def declare(space: str) -> opsmith.Operator:
    @opsmith.op(f"{space}::spread", autograd="reference")
    def spread(
        x: Float[Tensor, "N C"], by: int, bias: Float[Tensor, "C"] | None = None
    ) -> tuple[Float[Tensor, "N C"], Float[Tensor, "C"]]:
        return by * x + (0 if bias is None else bias), x.sum(0)

    return spread


class Memory(NamedTuple):
    out0: Tensor
    out1: Tensor


def memory() -> Memory:
    return Memory(torch.full((4, 3), torch.nan), torch.full((3,), torch.nan))


COMPILED = [pytest.param(name, marks=pytest.mark.slow) for name in ("outs_cpp", "outs_ungated")]


@pytest.fixture(scope="module", params=["outs_python", *COMPILED])
def spread(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """An operator in Python, and in C++; also without a gate, as in a wheel on another PyTorch."""
    space = request.param
    operator: Any = declare(space)
    with pytest.MonkeyPatch.context() as patch:
        if space != "outs_python":
            path = tmp_path_factory.mktemp(space) / "spread.cpp"
            path.write_text(KERNEL.replace("SPACE", space))
            operator.register_kernel("cpu", source=path)
            if space == "outs_ungated":
                patch.setattr(autograd_gate, "load", lambda: None)
                patch.setattr(autograd_gate, "built_beside", lambda _: contextlib.nullcontext())
            operator.build()
        yield operator


X = torch.arange(12.0).view(4, 3)


def test_results_come_into_the_memory_that_a_call_gives(spread: Any) -> None:
    given, bias = memory(), torch.ones(3)
    returned = spread.out(X, 2, bias, **given._asdict())
    assert returned[0] is given.out0 and returned[1] is given.out1
    for got, right in zip(given, spread(X, 2, bias), strict=True):
        assert torch.equal(got, right)


def test_any_strides_and_alignment_will_do(spread: Any) -> None:
    room = torch.zeros(20)
    given = Memory(room[1:13].view(3, 4).t(), room[14:20:2])
    spread.out(X, 3, **given._asdict())
    assert torch.equal(given.out0, 3 * X) and torch.equal(given.out1, X.sum(0))
    assert not room[[0, 13, 15, 17, 19]].any()


def test_an_argument_may_lie_in_the_memory(spread: Any) -> None:
    x = X.clone()
    spread.out(x, 2, x[0], out0=x, out1=torch.empty(3))
    assert torch.equal(x, 2 * X + X[0])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"out0": torch.empty(5, 3)},
            "argument 'out0' does not fit Float[Tensor, \"N C\"]: dimension 0 (N) is 5, expected 4."
            "\n  got: shape (5, 3), dtype float32\n  bound so far: N=4, C=3 (N by 'x')",
        ),
        ({"out1": torch.empty(3, 1)}, "argument 'out1' has 2 dimensions, expected 1 for Float"),
        (
            {"out1": torch.empty(3).double()},
            "argument 'out1' has dtype float64, expected float32: every Float tensor",
        ),
        (
            {"out0": torch.empty(4, 3, device="meta")},
            "argument 'out0' is on meta, expected cpu: every tensor of a call is on one device",
        ),
        (
            {"out0": torch.empty(3).expand(4, 3)},
            "argument 'out0' is written, but its elements share memory: dimension 0 was expanded",
        ),
    ],
)
def test_memory_that_does_not_fit_is_refused(
    spread: Any, given: dict[str, Tensor], said: str
) -> None:
    with pytest.raises(RuntimeError, match=f"^{spread.name}: {re.escape(said)}"):
        spread.out(X, 2, **{**memory()._asdict(), **given})


def test_two_results_share_no_memory(spread: Any) -> None:
    room = torch.empty(14)
    said = f"^{spread.name}: arguments 'out[01]' and 'out[01]' are both written, but share memory"
    with pytest.raises(RuntimeError, match=said):
        spread.out(X, 2, out0=room[:12].view(4, 3), out1=room[11:])


def test_autograd_is_refused_and_told_of_the_write(spread: Any) -> None:
    given = memory()
    needs = X.clone().requires_grad_()
    said = (
        f"{spread.name}: a call with out= has no derivative, but argument 'x' requires a gradient. "
        "Call the operator without out=, or under torch.no_grad()."
    )
    with pytest.raises(DifferentiationError, match=f"^{re.escape(said)}$"):
        spread.out(needs, 2, **given._asdict())
    with pytest.raises(DifferentiationError, match="'out1' requires a gradient"):
        spread.out(X, 2, out0=given.out0, out1=given.out1.clone().requires_grad_())
    with pytest.raises(DifferentiationError, match="'x' carries a tangent"):
        torch.func.jvp(lambda x: spread.out(x, 2, **memory()._asdict()), (X,), (X,))
    before = given.out0._version
    with torch.no_grad():
        spread.out(needs, 2, **given._asdict())
    assert given.out0._version > before
    kept = torch.ones(4, 3, requires_grad=True)
    product = (kept * given.out0).sum()
    spread.out(X, 3, **given._asdict())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_vmap_has_no_rule_and_autocast_casts_nothing(spread: Any) -> None:
    with pytest.raises(RuntimeError, match=rf"{spread.name}\.out.*out="):
        torch.vmap(lambda x, a, b: spread.out(x, 2, out0=a, out1=b))(
            torch.ones(2, 4, 3), torch.ones(2, 4, 3), torch.ones(2, 3)
        )
    given = memory()
    with torch.autocast("cpu"):
        spread.out(X, 2, **given._asdict())
    assert torch.equal(given.out0, 2 * X)


def test_pytorch_finds_the_variant(spread: Any) -> None:
    assert to_out_variant(spread.overload) is spread.out
    assert set(torch.library.opcheck(spread.out, (X, 2), memory()._asdict()).values()) == {
        "SUCCESS"
    }
    with FakeTensorMode():
        given = memory()
        assert spread.out(torch.empty(4, 3), 2, **given._asdict())[0] is given.out0
        with pytest.raises(RuntimeError, match="argument 'out1' does not fit"):
            spread.out(torch.empty(4, 3), 2, out0=given.out0, out1=torch.empty(4))


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_compiled_graph_writes_into_given_memory(spread: Any, dynamic: bool) -> None:
    torch._dynamo.reset()

    def step(x: Tensor, out0: Tensor) -> Tensor:
        spread.out(x, 2, out0=out0, out1=torch.empty(3))
        return out0 + 1

    given = memory().out0
    assert torch.equal(torch.compile(step, fullgraph=True, dynamic=dynamic)(X, given), 2 * X + 1)
    assert torch.equal(given, 2 * X)


def test_an_exported_graph_has_the_operator_and_a_copy(spread: Any) -> None:
    class Step(torch.nn.Module):
        def forward(self, x: Tensor, out0: Tensor) -> Tensor:
            spread.out(x, 2, out0=out0, out1=torch.empty(3))
            return out0 + 1

    program = torch.export.export(Step(), (X, memory().out0)).run_decompositions({})
    targets = [node.target for node in program.graph.nodes]
    assert spread.overload in targets and spread.out not in targets
    assert torch.equal(program.module()(X, memory().out0), 2 * X + 1)


def test_operators_without_a_variant_say_why() -> None:
    @opsmith.op("outs::writes", mutates_args=("x",))
    def writes(x: Float[Tensor, "N"]) -> None:
        x.zero_()

    @opsmith.op("outs::lists")
    def lists(x: Float[Tensor, "N"]) -> list[Float[Tensor, "N"]]:
        return [x + 1]

    @opsmith.op("outs::kept", data_dependent=("K",))
    def kept(x: Float[Tensor, "N"]) -> Float[Tensor, "K"]:
        return x[x > 0]

    @opsmith.op("outs::plain")
    def plain(x: Tensor) -> Tensor:
        return x + 1

    for one, why in (
        (writes, "it writes into 'x' already"),
        (lists, "it returns a list, and nothing says of how many tensors"),
        (kept, "data decide the size of K"),
        (plain, "its declaration gives a result without a shape"),
    ):
        said = f"{one.name}: has no out variant, because {why}"
        with pytest.raises(DeclarationError, match=f"^{re.escape(said)}$"):
            _ = one.out
        assert one.overload._overloadpacket.overloads() == ["default"]


def test_an_operator_of_another_library_has_its_own_variant() -> None:
    @opsmith.adopt("aten::asinh")
    def asinh(self: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        return torch.log(self + torch.sqrt(self * self + 1))

    assert asinh.out is torch.ops.aten.asinh.out


@opsmith.op("outs::weighted")
def weighted(
    x: Float[Tensor, "N"], times: int, bias: Float[Tensor, "N"] | None = None, *, by: float = 2.0
) -> Float[Tensor, "N"]:
    return by * times * x + (0 if bias is None else bias)


@opsmith.op("outs::total")
def total(
    absent: Float[Tensor, "N"] | None, xs: list[Float[Tensor, "N"]], sizes: tuple[int, int]
) -> Float[Tensor, "N"]:
    return sum(xs) * sizes[0] + sizes[1] + (0 if absent is None else absent)


@opsmith.op("outs::halves")
def halves(x: Float[Tensor, "N"]) -> tuple[Float[Tensor, "N"], Bool[Tensor, "N"]]:
    return x / 2, x > 0


def network(x: Tensor, bias: Tensor) -> Tensor:
    half, positive = halves(weighted(x + 1, 3, bias))
    return total(None, [half, weighted(half * 2, 2, by=0.5)], (2, 1)) * positive


@pytest.mark.parametrize("dynamic", [False, True])
def test_inductor_plans_the_memory_of_results(dynamic: bool) -> None:
    torch._dynamo.reset()
    x, bias = torch.randn(64), torch.randn(64)
    compiled = torch.compile(network, fullgraph=True, dynamic=dynamic)
    with torch.compiler.config.patch(force_disable_caches=True):
        got, (code,) = run_and_get_code(compiled, x, bias)
    assert torch.equal(got, network(x, bias))
    called = re.findall(r"torch\.ops\.outs\.(\w+)\.(\w+)\(", code)
    assert called == [(one, "out") for one in ("weighted", "halves", "weighted", "total")]
    # Count buffers that Inductor uses again in place of new ones for the seven results and sums.
    assert code.count("# reuse") >= 2
    if dynamic:
        assert torch.equal(compiled(x[:9], bias[:9]), network(x[:9], bias[:9]))


@pytest.mark.slow
def test_cpp_that_inductor_writes_calls_the_operators_themselves() -> None:
    torch._dynamo.reset()
    x, bias = torch.randn(64), torch.randn(64)
    compiled = torch.compile(network, fullgraph=True, options={"cpp_wrapper": True})
    got, (code, *_) = run_and_get_code(compiled, x, bias)
    assert torch.equal(got, network(x, bias))
    assert "weighted.default" in code and "weighted.out" not in code


def test_other_operators_are_lowered_as_before() -> None:
    torch._dynamo.reset()
    library = torch.library.Library("outs_other", "FRAGMENT")
    library.define("f(Tensor x) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
    library.impl("f", lambda x: x * 2, "CompositeExplicitAutograd")
    torch.library.register_fake("outs_other::f", torch.empty_like, lib=library)
    compiled = torch.compile(lambda x: torch.ops.outs_other.f(x + 1) + 1, fullgraph=True)
    got, (code,) = run_and_get_code(compiled, torch.ones(3))
    assert got.tolist() == [5.0, 5.0, 5.0]
    assert "torch.ops.outs_other.f.default(" in code
