"""What cannot be exported is refused by name, with what to do, and leaves nothing behind."""

from __future__ import annotations

import os
import sys
from typing import Any

import ort_operators as ops
import pytest
import torch
from jaxtyping import Complex, Float, Int64
from torch import Tensor, nn

import opsmith
from opsmith import CheckError, ExportError, MissingDependencyError, OpsmithError


class Call(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


X = torch.randn(4, 3)


@pytest.fixture
def refused(tmp_path):
    """The message with which an export is refused; asserts that nothing is left of it."""

    def run(model: Any, args: Any = (X,), *, error: type[Exception] = ExportError, **options: Any):
        options = {"target": "onnxruntime", **options}
        with pytest.raises(error) as caught:
            opsmith.export(Call(model), args, out=tmp_path / "dist", say=None, **options)
        assert os.listdir(tmp_path) == []
        return str(caught.value)

    return run


def test_an_operator_with_only_a_python_kernel(refused):
    message = refused(ops.python_only, form="library")
    assert "ort_test::python_only: the library form needs a C++ kernel" in message
    assert 'python_only.register_kernel("cpu", source="python_only.cpp")' in message


def test_a_reference_that_leaves_pytorch(refused):
    message = refused(ops.opaque)
    assert message.startswith("ort_test::opaque: ONNX cannot carry it in any form.\n")
    assert "  standard: does not say how standard ONNX operators compute it" in message
    assert "  library: the library form needs a C++ kernel" in message
    assert "  inline: its reference cannot be taken apart into PyTorch's operators" in message


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
@pytest.mark.parametrize(
    ("factor", "node"),
    [(lambda x: x.shape[0], "sym_size_int"), (lambda x: x.long().sum().item(), "item")],
    ids=["size", "data"],
)
def test_an_argument_that_is_computed_while_the_model_runs(refused, exporter, factor, node):
    rows = {0: torch.export.Dim("N", min=2)}
    message = refused(
        lambda x: ops.accumulate(x, torch.zeros(3), factor(x)),
        form="library",
        exporter=exporter,
        dynamic_shapes=((rows,),),
    )
    said = "ort_test::accumulate: argument 'factor' is computed while the model runs ({node}"
    assert said.format(node=node) in message
    assert "an attribute of an ONNX node is fixed. Give it a constant, export with" in message


@pytest.mark.parametrize(
    "factor",
    [lambda x: x.long().sum().item(), lambda x: max(x.shape[0], 6)],
    ids=["item", "max"],
)
def test_a_number_of_python_that_tracing_would_fix(refused, factor):
    rows = {0: torch.export.Dim("N", min=2)}
    message = refused(
        lambda x: ops.accumulate(x, torch.zeros(3), factor(x)),
        form="inline",
        exporter="torchscript",
        dynamic_shapes=((rows,),),
        verify=False,
    )
    assert message == (
        "ort_test::accumulate: argument 'factor' is computed while the model runs, by way of a "
        "number of Python (.item(), for example), which tracing would fix to the example's "
        f'{factor(X)}. Export with exporter="dynamo".'
    )


@pytest.mark.slow
def test_such_an_argument_is_fine_in_the_inline_form(export):
    def model(x: Tensor) -> Tensor:
        return ops.accumulate(x, torch.zeros(3), x.shape[0])

    rows = {0: torch.export.Dim("N", min=2)}
    loaded = export(Call(model), (X,), dynamic_shapes=((rows,),))
    assert [use.form for use in loaded.artifact.manifest.operators] == ["inline"]


@pytest.mark.slow
def test_a_dtype_that_the_kernel_does_not_have(refused):
    def model(x: Tensor) -> Tensor:
        return ops.positive_rows(x)[0]

    message = refused(model, (X.half(),), form="library")
    assert "calls it in float16, and its CPU kernel has float32, float64" in message


def test_a_model_that_takes_or_returns_complex_numbers(refused) -> None:
    pairs = torch.ones(4, 2)
    message = refused(lambda z: torch.view_as_real(z) + 1, (torch.view_as_complex(pairs),))
    assert message == (
        "the model's input 'inputs_0' is complex64, and ONNX Runtime does not support complex "
        "numbers. Pass real and imaginary parts (torch.view_as_real)."
    )
    message = refused(torch.view_as_complex, (pairs,))
    assert message.startswith("the model's output 'output' is complex64, and ONNX Runtime")


def test_complex_numbers(refused):
    @opsmith.op("ort_test::turned")
    def turned(x: Complex[Tensor, "*n"]) -> Complex[Tensor, "*n"]:
        return x * 1j

    turned.register_kernel("cpu", source=ops.SOURCES / "reverse.cpp")

    def model(x: Tensor) -> Tensor:
        return torch.view_as_real(turned(torch.view_as_complex(x)))

    message = refused(model, (torch.randn(4, 2),), form="library")
    assert "argument 'x' is complex64, and ONNX Runtime does not support complex numbers" in message


def test_an_opset_that_is_too_old(refused):
    @opsmith.op("ort_test::gelu")
    def gelu(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        return torch.nn.functional.gelu(x)

    gelu.register_onnx("Gelu", opset=20)
    message = refused(gelu, form="standard", opset=18)
    assert (
        "its standard form needs opset 20, and the export is of opset 18. Pass opset=20" in message
    )
    message = refused(gelu, opset=11)
    assert message == (
        "opset 11: the dynamo exporter writes opsets 18 to 23; "
        'exporter="torchscript" writes 9 to 20'
    )
    message = refused(gelu, opset=23, exporter="torchscript")
    assert message == (
        "opset 23: the torchscript exporter writes opsets 9 to 20; "
        'exporter="dynamo" writes 18 to 23'
    )


@pytest.mark.long
def test_a_translation_that_is_wrong(refused):
    @opsmith.op("ort_test::lost")
    def lost(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        return x * 2

    lost.register_onnx("Reluu")
    message = refused(lost, form="standard")
    assert "ort_test::lost: its ONNX form uses Reluu, which opset 20 does not have" in message

    lost.onnx_translations.clear()
    lost.register_onnx("Relu", attributes={"slope": 1.0})
    assert "Relu of ONNX has no attribute 'slope'; it has none" in refused(lost, form="standard")

    lost.onnx_translations.clear()
    lost.register_onnx(lambda op, x: (x, x))
    assert "gives 2 values, expected 1" in refused(lost, form="standard")

    lost.onnx_translations.clear()
    lost.register_onnx(lambda op, x: op.Mul(x, y))
    message = refused(lost, form="standard")
    assert "its register_onnx function failed: NameError: name 'y' is not defined" in message


def test_a_translation_that_computes_something_else_is_found_by_comparing(refused):
    @opsmith.op("ort_test::tripled")
    def tripled(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        return x * 3

    tripled.register_onnx(lambda op, x: op.Mul(x, 2.0))
    message = refused(tripled, error=CheckError)
    assert "ONNX Runtime disagrees with PyTorch in the output 'output'" in message


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ort_test::sometimes: ", ""])
def test_a_broken_translation_is_passed_over_where_another_form_works(export, name):
    @opsmith.op("ort_test::sometimes")
    def sometimes(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        return x * 3

    @sometimes.register_onnx()
    def _(op, x):
        raise ExportError(f"{name}only for other inputs")

    loaded = export(Call(sometimes), (X,))
    assert [use.form for use in loaded.artifact.manifest.operators] == ["inline"]


def test_a_model_with_state(refused):
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            self.count.add_(1)
            return x + self.count

    message = refused(Counting())
    assert "changes its buffer 'function.count' when it runs, and an ONNX model has no" in message


def test_a_model_that_writes_into_its_input(refused):
    def model(x: Tensor, total: Tensor) -> Tensor:
        return ops.accumulate(x, total)

    message = refused(model, (X, torch.zeros(3)))
    assert "the model writes into its input 'inputs_1', and the inputs of an ONNX model" in message


def test_an_operator_that_opsmith_does_not_know(refused):
    with torch.library._scoped_library("ort_foreign", "FRAGMENT") as foreign:
        foreign.define("twice(Tensor x) -> Tensor")
        foreign.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
        torch.library.register_fake("ort_foreign::twice", torch.empty_like, lib=foreign)
        for exporter in ("dynamo", "torchscript"):
            message = refused(torch.ops.ort_foreign.twice, exporter=exporter)
            assert "ort_foreign::twice: opsmith knows nothing of this operator" in message
            assert "twice = opsmith.adopt('ort_foreign::twice')" in message


def test_a_write_that_the_torchscript_exporter_would_lose(refused):
    def model(x: Tensor) -> Tensor:
        whole = torch.ones_like(x)
        ops.accumulate(x, whole[1])
        return whole

    message = refused(model, exporter="torchscript")
    assert "writes into 'total', which is a view of another tensor" in message


def test_values_that_the_torchscript_exporter_would_fix_to_the_examples(refused):
    @opsmith.op("ort_test::summed")
    def summed(x: Float[Tensor, "N M"], rows: Int64[Tensor, "K"]) -> Float[Tensor, "M"]:
        return sum((x[row] for row in rows.tolist()), torch.zeros(x.shape[1]))

    arguments = (X, torch.tensor([0, 2]))
    message = refused(summed, arguments, exporter="torchscript", form="inline")
    assert "ort_test::summed: its reference " in message


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_sizes_that_inlining_would_tie_together(refused, exporter):
    @opsmith.op("ort_test::fitted")
    def fitted(x: Float[Tensor, "N"], y: Float[Tensor, "M"]) -> Float[Tensor, "N"]:
        return x + y if x.shape == y.shape else x * y.sum()

    sizes = tuple({0: torch.export.Dim(name)} for name in ("n", "m"))
    message = refused(
        fitted, (torch.ones(3), torch.ones(3)), dynamic_shapes=(sizes,), exporter=exporter
    )
    assert "ort_test::fitted: with the reference inlined the input " in message
    assert "would be (n) in place of (m): a reference branches on sizes" in message


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(3, 4), (4, 3)])
def test_a_branch_on_sizes_that_inlining_would_take_away(refused, export, sizes):
    @opsmith.op("ort_test::clipped")
    def clipped(x: Float[Tensor, "N"], y: Float[Tensor, "M"]) -> Float[Tensor, "N"]:
        return x * (1 if x.shape[0] < y.shape[0] else 2)

    arguments = tuple(torch.ones(size) for size in sizes)
    dynamic = (tuple({0: torch.export.Dim(name)} for name in ("n", "m")),)
    message = refused(clipped, arguments, dynamic_shapes=dynamic)
    assert "ort_test::clipped: its reference branches on sizes, and the graph has" in message
    branch = "n < m" if sizes == (3, 4) else "n >= m"
    assert f"the branch of the example alone: {branch}." in message
    export(Call(clipped), arguments)


def test_an_option_of_the_wrong_kind_is_named(refused):
    for wrong in (3, ["inline"]):
        assert (
            f"target 'onnxruntime': form={wrong!r}; expected a str, or a mapping from operator "
            "names to these"
        ) in refused(ops.reverse, form=wrong)
    assert "target 'onnxruntime': opset='new'; expected int" in refused(ops.reverse, opset="new")


@pytest.mark.slow
def test_none_stands_for_an_options_default_and_an_operator_for_its_name(export):
    for form in (None, {ops.reverse: "inline"}):
        loaded = export(Call(ops.reverse), (torch.ones(3),), form=form, exporter=None)
        assert loaded.artifact.manifest.operators[0].name == ops.reverse.name


@pytest.mark.slow
def test_mistaken_options(refused):
    assert "has no option 'froms'; there are form, exporter, opset" in refused(
        ops.reverse, froms="inline"
    )
    assert "exporter='jit'; there are dynamo, torchscript" in refused(ops.reverse, exporter="jit")
    assert "form='best'; there are auto, standard" in refused(ops.reverse, form="best")
    assert "form names 'a::b', which the model does not call; its custom operators are " in refused(
        ops.reverse, form={"a::b": "inline"}
    )
    message = refused(ops.reverse, target="tensorflow", error=OpsmithError)
    assert message.startswith("there is no target 'tensorflow'; there are aotinductor, ")


def test_a_model_that_cannot_be_traced(refused):
    def model(x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x

    assert "torch.export.export could not trace Call" in refused(model)


def test_a_runtime_that_is_not_installed(refused, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    message = refused(ops.reverse, error=MissingDependencyError)
    assert message == (
        "target 'onnxruntime' (ONNX Runtime) is not available: onnxruntime is not installed. "
        'Get it: pip install "opsmith[onnx]"'
    )
