"""Every kind of argument, result and dtype, in every form, by both exporters."""

from __future__ import annotations

import builtins
import ctypes
import math
from typing import Any

import onnx
import ort_operators as ops
import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.export import Dim

import opsmith
from opsmith.kernels.libraries.loaded_library import calls_in

pytestmark = pytest.mark.slow(cases=2)

EXPORTERS = ("dynamo", "torchscript")
N = Dim("N")


class Call(nn.Module):
    """A function as a model, with its other arguments."""

    def __init__(self, function: Any, **arguments: Any) -> None:
        super().__init__()
        self.function = function
        self.arguments = arguments

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs, **self.arguments)


class Everything(nn.Module):
    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        self.arguments = arguments

    def forward(self, x: Tensor, bias: Any, index: Any, others: Any, more: Any) -> Any:
        fixed = {"k": 3, "on": True, "sizes": [1, 2, 3], "weights": (0.5, 0.3)}
        return ops.everything(x, bias, index, others, more, **{**fixed, **self.arguments})


def graph(model: Any) -> Any:
    path = model.artifact.path("model.onnx")
    return onnx.load(path).graph


def forms(model: Any) -> dict[str, str]:
    return {use.name: use.form for use in model.artifact.manifest.operators}


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("form", ["library", "inline"])
def test_every_argument_arrives(export, exporter, form):
    x = torch.randn(4, 3)
    arguments = (x, torch.randn(3), torch.tensor([3, 2, 1, 0]), [x + 1, x + 2], [torch.ones(2)])
    rows = {0: N}
    model = export(
        Everything(flags=[True, False], extra=4, ratio=0.3, label="hey", mode="other", shift=1e-3),
        arguments,
        form=form,
        exporter=exporter,
        dynamic_shapes=(rows, None, rows, [rows, rows], [None]),
    )
    assert forms(model) == {"ort_test::everything": form}
    assert model.artifact.manifest.outputs[1].shape == ("N",)


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_absent_arguments_stay_absent(export, exporter):
    model = export(
        Everything(on=False),
        (torch.randn(4, 3, dtype=torch.float64), None, None, [], None),
        form="library",
        exporter=exporter,
    )
    # In double nothing hides what an attribute of 32 bits would round.
    assert model.artifact.manifest.agreement.largest < 1e-15
    (node,) = graph(model).node
    assert (node.domain, node.op_type, list(node.input)) == ("ort_test", "everything", ["x"])
    attributes = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    assert attributes["weights_exact"] == b"0.5 0.3"
    assert attributes["k"] == 3 and attributes["on"] == 0 and attributes["mode"] == b"plain"
    assert "extra" not in attributes and "label" not in attributes


def test_an_optional_tensor_beside_a_list_may_come_alone(export):
    arguments = (torch.randn(4, 3), None, torch.tensor([3, 2, 1, 0]), [], [])
    loaded = export(Everything(), arguments, form="library")
    torch.testing.assert_close(loaded(*arguments), Everything()(*arguments))


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("form", ["library", "inline"])
def test_a_mutating_operator_is_made_functional(export, exporter, form):
    def model(x: Tensor) -> Any:
        total = x.new_zeros(x.shape[1])
        rows = ops.accumulate(x, total, 3)
        return rows + ops.accumulate(x, total), total

    loaded = export(
        Call(model), (torch.randn(4, 3),), form=form, exporter=exporter, dynamic_shapes=(({0: N},),)
    )
    assert model(torch.ones(2, 3))[1].tolist() == loaded(torch.ones(2, 3))[1].tolist() == [10] * 3


@pytest.mark.parametrize("form", ["library", "inline"])
def test_a_write_into_a_slice_reaches_the_whole(export, form):
    def model(x: Tensor) -> Tensor:
        whole = torch.ones_like(x)
        ops.accumulate(x, whole[1])
        return whole

    loaded = export(Call(model), (torch.randn(4, 3),), form=form)
    x = torch.randn(4, 3)
    torch.testing.assert_close(loaded(x), model(x))


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize(("parts", "sizes"), [(2, (6, 14)), (3, (7, 13))])
def test_parts_of_a_dynamic_size_stay_dynamic(export, exporter, parts, sizes):
    def model(x: Tensor) -> Any:
        return [part * (i + 1) for i, part in enumerate(x.chunk(parts, -1))]

    size = torch.export.Dim("size", min=2)
    dynamic = 2 * size if parts == 2 else 3 * size + 1
    loaded = export(
        Call(model), (torch.randn(3, 10),), exporter=exporter, dynamic_shapes=(({1: dynamic},),)
    )
    for one in sizes:
        x = torch.randn(3, one)
        torch.testing.assert_close(list(loaded(x)), model(x))


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_the_length_and_the_root_of_a_size_stay_dynamic(export, exporter):
    @opsmith.op("ort_test::scaled_by_sizes")
    def scaled(x: Float[Tensor, "N C"], y: Float[Tensor, "N"]) -> Float[Tensor, "N C"]:
        return x / math.sqrt(x.shape[-1]) + (torch.ones(len(y)) * y * len(x))[:, None]

    rows, columns = (torch.export.Dim(name, min=2) for name in ("rows", "columns"))
    loaded = export(
        Call(scaled),
        (torch.randn(4, 5), torch.randn(4)),
        form="inline",
        exporter=exporter,
        dynamic_shapes=(({0: rows, 1: columns}, {0: rows}),),
    )
    x, y = torch.randn(7, 3), torch.randn(7)
    torch.testing.assert_close(loaded(x, y), scaled(x, y))
    assert len is builtins.len


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_sizes_that_einsum_contracts_stay_dynamic(export, exporter):
    pytest.importorskip("opt_einsum")  # it would fix them

    @opsmith.op("ort_test::weighted")
    def weighted(
        x: Float[Tensor, "N C"], y: Float[Tensor, "N S"], z: Float[Tensor, "N S C"]
    ) -> Float[Tensor, "N"]:
        return torch.einsum("nc,ns,nsc->n", x, y, z)

    def twice(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return weighted(x, y, z) + torch.einsum("nc,ns,nsc->n", x, y, z)

    n, s, c = (torch.export.Dim(name, min=2) for name in ("n", "s", "c"))
    loaded = export(
        Call(twice),
        (torch.randn(4, 3), torch.randn(4, 5), torch.randn(4, 5, 3)),
        form="inline",
        exporter=exporter,
        dynamic_shapes=(({0: n, 1: c}, {0: n, 1: s}, {0: n, 1: s, 2: c}),),
    )
    arguments = torch.randn(2, 6), torch.randn(2, 7), torch.randn(2, 7, 6)
    torch.testing.assert_close(loaded(*arguments), twice(*arguments))
    assert torch.backends.opt_einsum.enabled


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_windows_along_any_dimension(export, exporter, dim):
    x = torch.randn(3, 4, 5)
    loaded = export(Call(lambda x: x.unfold(dim, 2, 1) + 0), (x,), exporter=exporter)
    torch.testing.assert_close(loaded(x), x.unfold(dim, 2, 1))


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_sizes_that_only_the_data_decides(export, exporter):
    model = export(
        Call(ops.positive_rows),
        (torch.randn(6, 3),),
        form="library",
        exporter=exporter,
        dynamic_shapes=(({0: N},),),
    )
    for rows in (torch.ones(5, 3), -torch.ones(5, 3)):
        for found, expected in zip(model(rows), ops.positive_rows(rows), strict=True):
            assert torch.equal(found, expected)


def test_every_dtype_of_the_kernel_runs_on_the_runtimes_threads(export):
    dtypes = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
    dtypes += [torch.float16, torch.bfloat16, torch.float32, torch.float64]

    def model(*tensors: Tensor) -> Any:
        return tuple(ops.reverse(x) for x in tensors)

    inputs = [(10 * torch.randn(3, 50, 7)).to(dtype) for dtype in dtypes]
    rows = tuple({0: N} for _ in dtypes)
    loaded = export(Call(model), tuple(inputs), form="library", dynamic_shapes=(rows,))
    large = [x.repeat(40, 1, 1) for x in inputs]
    for found, x in zip(loaded(*large), large, strict=True):
        assert found.dtype == x.dtype and torch.equal(found, x.flip(-1))
    assert loaded(*[x[:0] for x in inputs])[0].shape == (0, 50, 7)


def test_the_kernel_of_the_library_is_what_runs(export):
    model = export(Call(ops.reverse), (torch.ones(2, 3),), form="library")
    name = model.artifact.manifest.details["operators"]["ort_test::reverse"]
    path = model.artifact.path(name)
    kernel = ctypes.CDLL(str(path))
    before = calls_in(kernel, ops.reverse.signature, "cpu")
    model(torch.ones(2, 3))
    assert calls_in(kernel, ops.reverse.signature, "cpu") == before + 1


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_standard_operators_by_name_and_by_function(export, exporter):
    def model(x: Tensor, y: Tensor) -> Any:
        a, b = ops.mixed(ops.scaled(x), y, 3)
        return a, b

    loaded = export(
        Call(model),
        (torch.randn(4, 3), torch.randn(4, 3)),
        exporter=exporter,
        dynamic_shapes=(({0: N}, {0: N}),),
    )
    assert forms(loaded) == {"ort_test::mixed": "standard", "ort_test::scaled": "standard"}
    assert {node.domain for node in graph(loaded).node} == {""}
    assert "LeakyRelu" in {node.op_type for node in graph(loaded).node}
    assert loaded.artifact.manifest.details["libraries"] == []


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_reference_that_mutates_what_it_made_is_inlined(export, exporter):
    model = export(Call(ops.python_only), (torch.randn(4, 3),), exporter=exporter)
    assert forms(model) == {"ort_test::python_only": "inline"}


def test_a_form_for_each_operator(export):
    def model(x: Tensor) -> Tensor:
        return ops.scaled(ops.reverse(x))

    x = torch.randn(4, 3)
    auto = export(Call(model), (x,))
    assert forms(auto) == {"ort_test::reverse": "library", "ort_test::scaled": "standard"}
    chosen = {"ort_test::reverse": "inline", "ort_test::scaled": "inline"}
    assert forms(export(Call(model), (x,), form=chosen)) == chosen


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_numbers_keep_the_digits_of_float64(export, exporter):
    def several(x):
        huge = x * 1e200 * 1e-200
        return (
            x + 16777217.0,
            x * 0.1,
            torch.full_like(x, 0.1),
            huge,
            x.clamp(0.1, 0.7),
            x.half() * 0.1,
        )

    x = torch.linspace(0, 1, 5, dtype=torch.float64)
    program = export(Call(several), (x,), exporter=exporter)
    for got, expected in zip(program(x), several(x), strict=True):
        assert got.dtype == expected.dtype
        torch.testing.assert_close(got, expected, rtol=1e-15 if got.itemsize == 8 else 1e-3, atol=0)


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_an_input_that_nothing_reads_stays_an_input(export, exporter):
    def model(x: Tensor, unread: Tensor) -> Tensor:
        return ops.scaled(x)

    loaded = export(Call(model), (torch.randn(4, 3), torch.ones(2)), exporter=exporter)
    assert [spec.shape for spec in loaded.artifact.manifest.inputs] == [(4, 3), (2,)]


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_program_in_place_of_a_module(export, exporter):
    linear = nn.Linear(20, 3)
    program = torch.export.export(linear, (torch.randn(4, 20),), dynamic_shapes=({0: N},))
    loaded = export(program, None, exporter=exporter)
    x = torch.randn(7, 20)
    torch.testing.assert_close(loaded(x), linear(x))


def test_shapes_are_recorded_and_inferred(export):
    def model(x: Tensor) -> Tensor:
        return ops.everything(x, None, None, [], None, 1, True, [], (0.0, 0.0))[0].relu()

    loaded = export(Call(model), (torch.randn(4, 3),), form="library", dynamic_shapes=(({0: N},),))
    recorded = {value.name: value for value in graph(loaded).value_info}
    node = next(node for node in graph(loaded).node if node.domain == "ort_test")
    sizes = recorded[node.output[0]].type.tensor_type.shape.dim
    assert [size.dim_param or size.dim_value for size in sizes] == ["N", 3]

    # ONNX Runtime itself, from a model in which nothing is recorded.
    import onnxruntime

    bare = onnx.load(loaded.artifact.path("model.onnx"))
    del bare.graph.value_info[:]
    bare.graph.output[0].type.tensor_type.ClearField("shape")
    options = onnxruntime.SessionOptions()
    (name,) = loaded.artifact.manifest.details["libraries"]
    options.register_custom_ops_library(str(loaded.artifact.path(name)))
    session = onnxruntime.InferenceSession(bare.SerializeToString(), options)
    assert session.get_outputs()[0].shape == ["N", 3]
