"""Kernels in Triton as opsmith launches them; a stand-in for one runs as Python."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from jaxtyping import Float
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd

import opsmith
from opsmith.errors import DeclarationError


class Jit:
    """What ``@triton.jit`` gives: its launches are noted, and run as Python."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.arg_names = list(inspect.signature(fn).parameters)
        self.grids: list[tuple[int, ...]] = []
        self.given: list[dict[str, Any]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(**given: Any) -> None:
            self.grids.append(grid)
            self.given.append(given)
            self.fn(**{name: given[name] for name in self.arg_names})

        return launch


@pytest.fixture(autouse=True)
def without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.library, "wrap_triton", lambda kernel: kernel)


def accumulate(x_ptr, total_ptr, out_ptr, N, factor, BLOCK: "tl.constexpr"):
    out_ptr.copy_(x_ptr * factor)
    total_ptr.add_(out_ptr.sum(0))


def declared(**more: Any) -> tuple[opsmith.Operator, Jit]:
    @opsmith.op("launching::accumulated", mutates_args=("total",))
    def accumulated(
        x: Float[Tensor, "N C"], total: Float[Tensor, "C"], factor: float = 2.0
    ) -> Float[Tensor, "N C"]:
        out = x * factor
        total += out.sum(0)
        return out

    kernel = Jit(accumulate)
    meta = {"BLOCK": 4, "num_warps": 8}
    accumulated.register_kernel("cpu", triton=kernel, grid=("(N + 3) // 4", 2), meta=meta, **more)
    return accumulated, kernel


def test_a_call_allocates_results_and_launches_what_its_grid_says() -> None:
    accumulated, kernel = declared()
    x, total = torch.randn(5, 3), torch.zeros(3)
    out = accumulated(x, total, factor=3.0)
    torch.testing.assert_close(out, 3 * x)
    torch.testing.assert_close(total, 3 * x.sum(0))
    assert kernel.grids == [(2, 2, 1)]
    (given,) = kernel.given
    assert {name: given[name] for name in ("N", "factor", "BLOCK", "num_warps")} == {
        "N": 5,
        "factor": 3.0,
        "BLOCK": 4,
        "num_warps": 8,
    }
    assert accumulated.kernels["cpu"].calls == 1
    assert accumulated.kernels["cpu"].where.startswith(f"{__file__}:")


def test_what_is_compiled_ahead_of_time_is_found_by_the_declaration_and_its_sizes() -> None:
    accumulated, kernel = declared()
    entry = accumulated.kernels["cpu"].entry
    assert entry is not None
    assert (entry.device, entry.path, entry.strided) == ("cpu", Path(__file__), False)
    language: Any = entry.language
    assert language.kernel.function is kernel and language.kernel.device == "cpu"
    assert language.served == ()
    accumulated.register_sizes({"N": 8})
    language = accumulated.kernels["cpu"].entry.language
    assert language.served == ({"N": 8},)


def test_a_kernel_by_name_is_looked_for_beside_the_declaration() -> None:
    space = {"__package__": "acme.ops", "Float": Float, "Tensor": Tensor, "__name__": "acme.ops.x"}
    text = 'def named(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]: return x'
    exec(compile(text, "/acme/ops/x.py", "exec"), space)
    named = opsmith.op("launching::named")(space["named"])
    named.register_kernel("cpu", triton=".kernels:scale", grid=("N",))
    launcher: Any = named.kernels["cpu"]
    assert (launcher.kernel.package, launcher.where) == ("acme.ops", ".kernels:scale")
    assert launcher.file == Path("/acme/ops/x.py")
    assert launcher.function.__module__ == "acme.ops.x"


def test_nothing_is_launched_where_no_program_is_asked_for() -> None:
    accumulated, kernel = declared()
    assert accumulated(torch.randn(0, 3), torch.zeros(3)).shape == (0, 3)
    assert kernel.grids == []


@pytest.mark.parametrize("strided", [False, True, ("total",), ["x"]])
def test_tensors_arrive_contiguous_but_those_that_the_kernel_takes_as_they_are(strided) -> None:
    accumulated, kernel = declared(strided=strided)
    x, total = torch.randn(3, 5).t(), torch.zeros(6)[::2]
    out = accumulated(x, total)
    torch.testing.assert_close(out, 2 * x)
    torch.testing.assert_close(total, 2 * x.sum(0))  # written back, where it was copied
    as_they_are = ("x", "total") if strided is True else strided or ()
    (given,) = kernel.given
    assert given["x_ptr"].is_contiguous() == ("x" not in as_they_are)
    assert given["total_ptr"].is_contiguous() == ("total" not in as_they_are)


def halve(x_ptr, bias_ptr, out):
    out.copy_(x_ptr / 2 if bias_ptr is None else x_ptr / 2 + bias_ptr)


def captured(function: Callable[..., Any], *args: Any) -> list[str]:
    """The operators in what a compiler is given for a call."""
    found: list[str] = []

    def compiler(graph: torch.fx.GraphModule, _: Any) -> Any:
        found.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return make_boxed_func(graph.forward)

    torch._dynamo.reset()
    torch.compile(function, backend=aot_autograd(fw_compiler=compiler), fullgraph=True)(*args)
    return found


def test_a_compiler_sees_what_is_launched_and_a_call_where_another_kernel_runs() -> None:
    @opsmith.op("launching::halved")
    def halved(x: Float[Tensor, "N"], bias: Float[Tensor, "N"] | None = None) -> Float[Tensor, "N"]:
        return x * 0.5 if bias is None else x * 0.5 + bias

    halved.register_kernel("cpu", triton=Jit(halve), grid=("N",))
    x = torch.randn(4)
    torch.testing.assert_close(halved(x), x / 2)
    torch.testing.assert_close(halved(x, torch.ones(4)), x / 2 + 1)
    assert halved.kernels["cpu"].dissolves
    seen = captured(lambda x: halved(x), x)
    assert any("div" in name for name in seen), seen
    assert not any("halved" in name for name in seen), seen
    with halved.set_kernel_enabled("cpu", False):
        assert any("launching.halved" in name for name in captured(lambda x: halved(x), x))
    halved.register_kernel("cpu", lambda x, bias: x / 2)
    assert any("launching.halved" in name for name in captured(lambda x: halved(x), x))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"function": torch.sin, "triton": Jit(halve), "grid": ("N",)},
            "give either a function, or source=, or a kernel as triton=",
        ),
        (
            {"triton": Jit(halve)},
            "register_kernel(triton=…) needs grid=, the number of programs to launch: "
            "grid=lambda N, BLOCK: (triton.cdiv(N, BLOCK),)",
        ),
        *(
            (
                more,
                "register_kernel: grid=, meta= and args= describe the launch of a kernel that "
                "triton= gives, and there is none",
            )
            for more in ({"grid": (1,)}, {"meta": {}}, {"args": {}}, {"triton": True, "meta": {}})
        ),
        (
            {"triton": True, "source": "x.cpp"},
            "triton=True says that a Python function launches kernels in Triton; source= is for "
            "C++ and CUDA",
        ),
    ],
)
def test_what_cannot_be_given_together_is_said_in_full(more: dict[str, Any], said: str) -> None:
    accumulated, _ = declared()
    with pytest.raises(DeclarationError) as caught:
        accumulated.register_kernel("cpu", **more)
    assert str(caught.value) == f"launching::accumulated: {said}"


def test_a_function_that_launches_is_registered_as_it_is_or_as_a_decorator() -> None:
    accumulated, _ = declared()

    @accumulated.register_kernel("cpu", triton=True)
    def launches(x: Tensor, total: Tensor, factor: float) -> Tensor:
        total.add_((x * factor).sum(0))
        return x * factor

    kernel = accumulated.kernels["cpu"]
    assert kernel.dissolves and kernel.entry is None and kernel.source is None
    assert kernel.where == f"{__file__}:{launches.__code__.co_firstlineno}"
    total = torch.zeros(2)
    accumulated(torch.ones(3, 2), total)
    assert (total.tolist(), kernel.calls) == ([6.0, 6.0], 1)
