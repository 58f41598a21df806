"""What the gates before an operator's kernels are told; that they do it is seen where they run."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith.errors import BuildError, OpsmithError
from opsmith.kernels import KernelSource, Recipe, kernel_source
from opsmith.operators.dispatch.gates import argument_gate, autograd_gate, gate_libraries
from opsmith.operators.dispatch.gates.argument_gate import ArgumentGate, build_for_programs
from opsmith.signature import Signature, signature_of
from opsmith.system.watchdog import watched


class Function:
    """A function of a library, which says what it was called with."""

    def __init__(self, returns: Any) -> None:
        self.returns = returns
        self.called: list[tuple[Any, ...]] = []

    def __call__(self, *args: Any) -> Any:
        self.called.append(args)
        return self.returns


class Gates:
    """A library of gates, whose functions only say what they were called with."""

    def __init__(self, handle: int | None = 7) -> None:
        self.opsmith_argument_gate_open = self.opsmith_gate_open = Function(handle)
        self.opsmith_gate_close = Function(None)
        self.opsmith_argument_gate_calls = Function(3)
        self.opsmith_gate_error = Function(b"no such operator")


@pytest.fixture
def signature() -> Signature:
    """Two tensors that are read, a number, and one that is written."""

    def mix(x: Float[Tensor, "N"], y: Float[Tensor, "N"], k: int, out: Float[Tensor, "N"]): ...

    mix.__annotations__["return"] = None
    return signature_of(mix, "gates::mix", mutates_args=("out",))


def source(signature: Signature, device: str, strided: Any) -> KernelSource:
    return kernel_source(signature, device, Path("mix.cpp"), api="torch", strided=strided)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Gates:
    """In place of the one that is compiled; abs() stands for the comparison."""
    gates = Gates()
    monkeypatch.setattr(argument_gate, "_load", lambda: gates)
    monkeypatch.setattr(argument_gate, "build_arguments_check", lambda signature: "libc.so.6")
    monkeypatch.setattr(argument_gate, "arguments_symbol", lambda signature: "abs")
    return gates


def test_the_argument_gate_is_told_how_the_arguments_of_each_kernel_arrive(
    library: Gates, signature: Signature
) -> None:
    opened = ArgumentGate(
        signature,
        {
            "CPU": source(signature, "cpu", False),
            "CUDA": source(signature, "cuda", True),
            "XPU": source(signature, "xpu", ("y", "out")),
        },
    )
    ((name, arrivals, check),) = library.opsmith_argument_gate_open.called
    assert name == b"gates::mix"
    assert arrivals == b"CPU:cccw,CUDA:ssss,XPU:cscs"
    expected = ctypes.cast(ctypes.CDLL("libc.so.6")["abs"], ctypes.c_void_p)
    assert check.value == expected.value

    assert opened.calls("CUDA") == 3
    assert opened.calls("XPU") == 3
    assert library.opsmith_argument_gate_calls.called == [(7, 1), (7, 2)]
    opened.close()
    assert library.opsmith_gate_close.called == [(7,)]


def test_what_pytorch_says_against_an_argument_gate_names_the_operator(
    library: Gates, signature: Signature
) -> None:
    library.opsmith_argument_gate_open.returns = None
    with pytest.raises(OpsmithError) as caught:
        ArgumentGate(signature, {"CPU": source(signature, "cpu", False)})
    assert str(caught.value) == "gates::mix: no such operator"


def test_a_program_opens_the_argument_gate_when_it_loads_the_library(
    monkeypatch: pytest.MonkeyPatch, signature: Signature
) -> None:
    built: list[Any] = []

    def build(recipe: Recipe) -> Path:
        built.append(recipe)
        return Path("built.so")

    monkeypatch.setattr(Recipe, "build", build)
    kernel = source(signature, "cpu", ("x",))
    assert build_for_programs(kernel) == Path("built.so")
    (asked,) = built
    assert asked.name == "gates__mix__cpu__gate"
    (unit,) = asked.objects
    assert (unit.name, unit.source.name, unit.full_torch) == (
        "argument_gate",
        "argument_gate.cpp",
        True,
    )
    assert unit.defines == kernel.device_row.compile_definitions
    assert unit.flags == asked.flags == ("-O2",)
    build_for_programs(source(signature, "cpu", ("x", "y")))
    assert built[-1].generated.key != asked.generated.key, "its arguments arrive otherwise"
    build_for_programs(kernel)
    assert built[-1].generated.key == asked.generated.key
    assert asked.torch == "full"
    assert asked.what == "the validation of gates::mix"
    assert asked.defines == kernel.device_row.compile_definitions
    files = asked.generated.render()
    text = files["mix_gate.cpp"]
    symbol = argument_gate.arguments_symbol(signature)
    assert f'opsmith_argument_gate_open("gates::mix", "CPU:sccw", &{symbol})' in text
    assert f'extern "C" int32_t {symbol}(' in text
    assert any(symbol in other for name, other in files.items() if name != "mix_gate.cpp")


def test_calls_that_need_a_derivative_go_to_one_of_the_same_schema() -> None:
    @opsmith.op("gates::behind")
    def behind(x: Float[Tensor, "N"], *, scale: float = 2.0) -> Float[Tensor, "N"]:
        return x * scale

    def derivative(keyset: torch._C.DispatchKeySet, x: Tensor, *, scale: float = 2.0) -> Tensor:
        assert keyset.has(torch._C.DispatchKey.AutogradCPU)
        return x.detach() * scale

    gates: Any = Gates()
    opened = autograd_gate.Gate(gates, behind.signature, derivative)
    assert gates.opsmith_gate_open.called == [
        (b"gates::behind", b"opsmith_derivative::gates__behind")
    ]
    handed_on = torch.ops.opsmith_derivative.gates__behind.default
    assert str(handed_on._schema) == (
        "opsmith_derivative::gates__behind(Tensor x, *, float scale=2.) -> Tensor"
    )
    assert handed_on(torch.ones(2, requires_grad=True), scale=3.0).tolist() == [3.0, 3.0]
    opened.close()
    assert gates.opsmith_gate_close.called == [(7,)]
    assert not hasattr(torch.ops.opsmith_derivative, "gates__behind") or not (
        torch._C._dispatch_has_kernel("opsmith_derivative::gates__behind")
    )

    gates = Gates(None)
    with pytest.raises(OpsmithError, match=r"^gates::behind: no such operator$"):
        autograd_gate.Gate(gates, behind.signature, derivative)


def test_an_autograd_gate_that_does_not_compile_is_done_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def build(recipe: Recipe) -> Path:
        asked.append(recipe)
        raise BuildError("no compiler")

    monkeypatch.setattr(Recipe, "build", build)
    assert autograd_gate.load.__wrapped__() is None
    (given,) = asked
    assert given.name == "autograd_gate"
    assert [path.name for path in given.sources] == ["autograd_gate.cpp"]
    assert given.torch == "full"
    assert given.what == "the autograd gate (once for this PyTorch)"


def test_a_gate_that_was_built_is_loaded_from_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []

    class Built:
        def __init__(self, path: str) -> None:
            loaded.append(path)

        def __getattr__(self, name: str) -> Function:
            assert name.startswith("opsmith_")
            setattr(self, name, Function(None))
            return getattr(self, name)

    monkeypatch.setattr(Recipe, "build", lambda recipe: Path(f"{recipe.name}.so"))
    monkeypatch.setattr(gate_libraries.ctypes, "CDLL", Built)
    plain, recorder = autograd_gate.load.__wrapped__(), autograd_gate.load_recorder.__wrapped__()
    assert loaded == ["autograd_gate.so", "recorder.so"]
    for library in (plain, recorder):
        # ctypes would take addresses and texts for ints of 32 bits.
        assert library.opsmith_gate_close.argtypes == [ctypes.c_void_p]
        assert library.opsmith_gate_error.restype is ctypes.c_char_p
    assert plain.opsmith_gate_open.restype is ctypes.c_void_p
    assert recorder.opsmith_recorder_open.restype is ctypes.c_void_p
    assert len(recorder.opsmith_recorder_open.argtypes) == 10


def test_the_autograd_gate_is_there_when_what_was_built_beside_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[str] = []
    loads: list[int] = []

    class Loader:
        size = 0

        def cache_info(self) -> Any:
            return type("Info", (), {"currsize": self.size})

        def __call__(self) -> None:
            loads.append(1)

    loader = Loader()
    monkeypatch.setattr(autograd_gate, "load", loader)
    monkeypatch.setattr(gate_libraries.progress, "status", shown.append)
    with autograd_gate.built_beside():
        pass
    assert loads == [1] and not shown
    loader.size = 1
    with autograd_gate.built_beside():
        pass
    assert loads == [1], "it is loaded already"


def test_an_interrupt_while_gates_are_built_ends_their_compilers() -> None:
    started, ended = threading.Event(), []

    def build() -> None:
        with watched() as variables:
            # For as long as a compiler takes on a busy machine.
            program = subprocess.Popen(["sleep", "60"], env={**os.environ, **variables})
            started.set()
            ended.append(program.wait())

    with pytest.raises(KeyboardInterrupt), gate_libraries.loaded_beside([build]):
        assert started.wait(60)
        raise KeyboardInterrupt
    assert ended == [-signal.SIGKILL]
