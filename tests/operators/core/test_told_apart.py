"""What an operator is told about autocast, ONNX, sources and others of its name."""

from __future__ import annotations

import inspect
import sys
import types
from pathlib import Path
from typing import Annotated, Any

import pytest
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

import opsmith
from opsmith import DeclarationError, NonDifferentiable
from opsmith.errors import DifferentiationError
from opsmith.operators.core import value_checks
from opsmith.operators.core.source_location import where_written
from opsmith.operators.dispatch.gates import autograd_gate
from opsmith.operators.dispatch.kernel import source_path
from opsmith.signature.constraints import LARGEST

UNKNOWN = "which opsmith did not define"


def line() -> int:
    """The line of the caller."""
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return frame.f_back.f_lineno


# --- autocast ------------------------------------------------------------------------------------


def test_the_widest_dtype_of_the_generic_tensors_alone_decides() -> None:
    @opsmith.op("told_apart::blended")
    def blended(
        x: Float[Tensor, "N"],
        xs: list[Float[Tensor, "N"]],
        y: Float[Tensor, "N"] | None,
        table: Float32[Tensor, "M"],
        rows: Int64[Tensor, "N"],
    ) -> Float[Tensor, "N"]:
        return x + sum(xs) + (0 if y is None else y) + table[rows].to(x.dtype)

    half, table, rows = torch.ones(3).bfloat16(), torch.ones(2), torch.zeros(3, dtype=torch.int64)
    with torch.autocast("cpu", torch.bfloat16):
        assert blended(half, [half], None, table, rows).dtype is torch.bfloat16
        assert blended(half, [half, half.float()], None, table, rows).dtype is torch.float32
        assert blended(half, [], half.float(), table, rows).dtype is torch.float32
        assert blended(half, [], half.double(), table, rows).dtype is torch.float64


# --- ONNX ----------------------------------------------------------------------------------------


def test_a_translation_knows_where_it_was_registered() -> None:
    @opsmith.op("told_apart::relu")
    def relu(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x.relu()

    assert relu.register_onnx("Relu", opset=14) is None
    here = line() - 1

    @relu.register_onnx(opset=6)
    def written(op: Any, x: Any) -> Any:
        return op.Relu(x)

    one, other = relu.onnx_translations
    assert (one.how, one.opset, one.where) == ("Relu", 14, f"{__file__}:{here}")
    assert (other.how, other.opset, other.where) == (written, 6, where_written(written))
    assert (one.inputs, one.attributes) == (None, {})
    relu.register_onnx("Relu", inputs=["x"], attributes={"alpha": 1})
    assert relu.onnx_translations[-1].inputs == ["x"]
    assert relu.onnx_translations[-1].attributes == {"alpha": 1}


def test_what_has_no_source_is_written_nowhere() -> None:
    assert where_written(torch.sin) == ""
    assert where_written(line) == f"{__file__}:{line.__code__.co_firstlineno}"


# --- sources -------------------------------------------------------------------------------------


def test_a_source_of_what_has_no_file_lies_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernel.cpp").write_text("")
    in_a_notebook = eval(compile("lambda x: x", "<ipython-input-1>", "eval"))
    for function in (torch.sin, in_a_notebook):
        assert source_path("kernel.cpp", function, "a::b") == tmp_path / "kernel.cpp"
    # A folder of that name is not where the cell was written.
    (tmp_path / "<cell").mkdir()
    of_a_cell = eval(compile("lambda x: x", "<cell/1>", "eval"))
    assert source_path("kernel.cpp", of_a_cell, "a::b") == tmp_path / "kernel.cpp"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert source_path("~/kernel.cpp", line, "a::b") == tmp_path / "kernel.cpp"
    with pytest.raises(
        DeclarationError, match=r"there is no file .*tests/operators/core/kernel\.cpp"
    ):
        source_path("kernel.cpp", line, "a::b")


def test_the_language_that_was_asked_for_is_remembered(tmp_path: Path) -> None:
    @opsmith.op("told_apart::for_npus")
    def for_npus(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x

    (tmp_path / "kernel.cpp").write_text("")
    for_npus.register_kernel("npu", source=tmp_path / "kernel.cpp", language="ascendc")
    source = for_npus.kernels["npu"].source
    assert source is not None and (source.language.asked, source.language.name) == (
        "ascendc",
        "Ascend C",
    )


# --- values --------------------------------------------------------------------------------------


def test_sizes_are_multiplied_and_compared_beyond_64_bits() -> None:
    shapes = torch.tensor([[2**40, 2**40], [0, 2**62], [2**62, 2**62], [3, 4]])
    assert value_checks._products(shapes).tolist() == [LARGEST, 0, LARGEST, 12]
    assert value_checks._products(torch.tensor([[2, 3], [0, 5]], dtype=torch.int32)).tolist() == [
        6,
        0,
    ]
    large = torch.tensor([2**63 + 5, 7, 2**63 - 1], dtype=torch.uint64)
    assert value_checks._comparable(large).tolist() == [LARGEST, 7, 2**63 - 1]
    assert value_checks._comparable(torch.tensor([200], dtype=torch.uint16)).dtype is torch.int64


# --- others of its name --------------------------------------------------------------------------


def test_an_operator_that_a_package_declares_is_told_with_its_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    definition = torch.library.Library("told_apart_elsewhere", "DEF")
    definition.define("taken(Tensor x) -> Tensor")
    definition.define("by_nobody(Tensor x) -> Tensor")
    asked: list[str] = []

    def find(name: str) -> Any:
        asked.append(name)
        return types.SimpleNamespace(reference=line) if name.endswith("taken") else None

    other = types.SimpleNamespace(find=find)
    monkeypatch.setitem(sys.modules, "acme._opsmith.operators.core.registry", other)

    def declare(name: str, definer: str) -> None:
        def function(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
            return x

        with pytest.raises(DeclarationError) as caught:
            opsmith.op(f"told_apart_elsewhere::{name}")(function)
        assert str(caught.value) == (
            f"told_apart_elsewhere::{name}: PyTorch already has an operator of this name, "
            f"{definer}. Give yours, declared in {where_written(function)}, another name."
        )

    declare("taken", f"declared in {where_written(line)}")
    declare("by_nobody", UNKNOWN)
    assert asked == ["told_apart_elsewhere::taken", "told_apart_elsewhere::by_nobody"]


# --- derivatives ---------------------------------------------------------------------------------


@opsmith.op("told_apart::cubed")
def cubed(
    x: Float[Tensor, "N"], rows: Int64[Tensor, "N"], w: Float[Tensor, "N"], k: int = 1
) -> tuple[Annotated[Float[Tensor, "N"], NonDifferentiable()], Float[Tensor, "N"]]:
    return w * x**3, x + k


@opsmith.op("told_apart::cubed_backward")
def cubed_backward(
    grad_out1: Float[Tensor, "N"],
    result_out0: Float[Tensor, "N"],
    w: Float[Tensor, "N"],
    k: int,
    more: int = 3,
) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"]]:
    return grad_out1 * w, result_out0 * more * k


def test_a_recorder_is_told_what_of_a_call_the_backward_takes_and_gives() -> None:
    cubed.register_backward(cubed_backward, grads={"w": 0, "x": "out1"})
    declared = cubed.declared_backward
    assert declared is not None
    name, kinds, positions, count, gradients, differentiable, arguments, results = (
        autograd_gate._plan(declared)
    )
    assert name == b"told_apart::cubed_backward"
    # k is an argument, more keeps its default; then a gradient, a result, an argument.
    assert (kinds, list(positions), count) == (b"graad", [1, 0, 2, 3, 0], 5)
    assert (list(gradients), arguments, results) == ([1, -1, 0, -1], 4, b"-d")
    assert differentiable == b"dddd"


def test_lists_and_results_are_kept_for_a_declared_backward_and_come_back_in_their_places() -> None:
    @opsmith.op("told_apart::scaled")
    def scaled(
        xs: Annotated[list[Float[Tensor, "N"]], NonDifferentiable()],
        k: int,
        w: Float[Tensor, "N"],
        v: Float[Tensor, "N"],
    ) -> Float[Tensor, "N"]:
        return k * sum(xs) * w + v

    given: list[Any] = []

    @opsmith.op("told_apart::scaled_backward")
    def scaled_backward(
        grad: Float[Tensor, "N"],
        w: Float[Tensor, "N"],
        xs: list[Float[Tensor, "N"]],
        k: int,
        result: Float[Tensor, "N"],
    ) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"]]:
        given.append(([x.tolist() for x in xs], k, w.tolist(), result.tolist()))
        return grad * k * sum(xs), grad.clone()

    scaled.register_backward(scaled_backward, grads={"v": 1, "w": 0})
    xs = [torch.ones(2), torch.full((2,), 3.0)]
    w, v = torch.full((2,), 5.0, requires_grad=True), torch.zeros(2, requires_grad=True)
    scaled(xs, 2, w, v).sum().backward()
    assert given == [([[1.0, 1.0], [3.0, 3.0]], 2, [5.0, 5.0], [40.0, 40.0])]
    assert w.grad is not None and v.grad is not None
    assert (w.grad.tolist(), v.grad.tolist()) == ([8.0, 8.0], [1.0, 1.0])


def test_forward_mode_through_what_is_written_is_refused_in_full() -> None:
    @opsmith.op("told_apart::added", mutates_args=("total",))
    def added(x: Float[Tensor, "N"], total: Float[Tensor, "N"]) -> None:
        total += x

    x = torch.ones(2)
    with pytest.raises(DifferentiationError) as caught:
        torch.func.jvp(lambda x: added(x, torch.zeros(2)), (x,), (x,))
    assert str(caught.value) == (
        "told_apart::added: writes into 'total', and such an operator has no forward-mode "
        "derivative, but an argument carries a tangent (jvp, jacfwd, hessian). Declare "
        "added(x, total) -> (total), which writes into nothing, and write afterwards: "
        "total.copy_(...)."
    )


def test_a_backward_that_returns_another_number_of_gradients_is_told_which_are_expected() -> None:
    @opsmith.op("told_apart::doubled")
    def doubled(x: Float[Tensor, "N"], y: Float[Tensor, "N"], k: int) -> Float[Tensor, "N"]:
        return (x + y) * k

    doubled.register_autograd(lambda ctx, grad: (grad, grad))
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(DifferentiationError) as caught:
        doubled(x, x, 2).sum().backward()
    assert str(caught.value) == (
        "told_apart::doubled: its backward returned 2 gradients, expected 3, one for each of "
        "x, y, k (None where there is no gradient)."
    )
