"""The target ``onnx``: a file for any runtime, run here by ONNX's own evaluator."""

from __future__ import annotations

import onnx
import onnx.reference
import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn

import opsmith
from gallery.bev_pool_v2.bev_pool_v2 import bev_pool_v2
from gallery.bev_pool_v2.geometry import Grid
from gallery.bev_pool_v2.inputs import camera_case
from opsmith import ExportError
from opsmith.targets.onnx.node import NodeLayout

SIZE = (1, 8, 8)


class Pool(nn.Module):
    def forward(self, *inputs: Tensor) -> Tensor:
        return bev_pool_v2(*inputs, SIZE)


def pool_inputs(dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    grid = Grid((-20.0, -20.0, -3.0), (5.0, 5.0, 6.0), (8, 8, 1))
    case = camera_case(dtype, feature_size=(2, 4), bins=6, channels=8, grid=grid)
    assert case.pop("bev_size") == SIZE
    return tuple(case.values())


def pool_shapes() -> tuple[object, ...]:
    points, intervals = torch.export.Dim("P"), torch.export.Dim("I")
    return ((None, None, *[{0: points}] * 3, *[{0: intervals}] * 2),)


@pytest.mark.slow
@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_bev_pool_v2_becomes_standard_nodes(tmp_path, exporter):
    artifact = opsmith.export(
        Pool(),
        pool_inputs(),
        target="onnx",
        out=tmp_path / "dist",
        say=None,
        exporter=exporter,
        dynamic_shapes=pool_shapes(),
    )
    assert artifact.manifest.operators[0].form == "inline"
    # The example, its rows in another order, and three larger sizes: a smaller one would leave out
    # a place that an index names.
    assert artifact.manifest.agreement.samples == 5
    model = onnx.load(artifact.path("model.onnx"))
    onnx.checker.check_model(model)
    assert {node.domain for node in model.graph.node} == {""}
    inputs = {value.name: value.type.tensor_type.shape.dim for value in model.graph.input}
    assert [size.dim_param for size in inputs["inputs_2"]] == ["P"]
    assert [size.dim_param for size in inputs["inputs_5"]] == ["I"]
    # The paths of whoever exported are nobody's business.
    assert b"/gallery/" not in artifact.path("model.onnx").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
@pytest.mark.parametrize("form", ["library", "inline"])
def test_bev_pool_v2_runs_in_onnx_runtime(tmp_path, exporter, form):
    artifact = opsmith.export(
        Pool(),
        pool_inputs(),
        target="onnxruntime",
        out=tmp_path / "dist",
        say=None,
        exporter=exporter,
        form=form,
        dynamic_shapes=pool_shapes(),
    )
    assert artifact.manifest.operators[0].form == form
    assert artifact.manifest.agreement.largest < 1e-6


def test_a_bare_file_has_no_libraries(tmp_path):
    with pytest.raises(ExportError, match="a bare ONNX file has none"):
        opsmith.export(
            Pool(), pool_inputs(), target="onnx", out=tmp_path / "dist", say=None, form="library"
        )


def test_a_model_without_custom_operators(tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    artifact = opsmith.export(
        model, (torch.randn(1, 3, 8, 8),), target="onnx", out=tmp_path / "dist", say=None
    )
    assert artifact.manifest.operators == ()


@pytest.mark.slow
def test_numbers_become_constants_of_the_other_inputs_dtype(tmp_path):
    @opsmith.op("onnx_test::halved")
    def halved(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        return torch.where(x > 1, x / 2, x.clamp(min=-1))

    @halved.register_onnx(opset=16)
    def _(op, x):
        return op.Where(op.Greater(x, 1), op.Div(x, 2), op.Clip(x, -1))

    for exporter in ("dynamo", "torchscript"):
        artifact = opsmith.export(
            _Call(halved),
            (torch.randn(8, dtype=torch.float64),),
            target="onnx",
            out=tmp_path / exporter,
            say=None,
            exporter=exporter,
        )
        assert artifact.manifest.operators[0].form == "standard"


class _Call(nn.Module):
    def __init__(self, function: object) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@pytest.mark.parametrize(
    ("value", "exact"),
    [(0.5, False), (0.1, True), (float("inf"), False), (float("nan"), False), (1e300, True)],
)
def test_a_float_that_32_bits_would_round_is_kept_as_text_too(value, exact):
    @opsmith.op("onnx_test::floats")
    def floats(x: Float[Tensor, "*n"], scale: float) -> Float[Tensor, "*n"]:
        return x * scale

    values = NodeLayout(floats.signature).attribute_values({"x": None, "scale": value})
    assert ("scale_exact" in values) == exact
    if exact:
        assert float(values["scale_exact"]) == value


@pytest.mark.slow
def test_torch_onnx_export_takes_the_standard_forms_by_itself() -> None:
    @opsmith.op("onnx_table::scaled")
    def scaled(x: Float[Tensor, "N"], by: float = 2.0) -> Float[Tensor, "N"]:
        return x * by

    @opsmith.op("onnx_table::written", mutates_args=("x",))
    def written(x: Float[Tensor, "N"]) -> None:
        x.zero_()

    scaled.register_onnx(lambda op, x, by: op.Mul(x, by), opset=14)
    scaled.register_onnx(lambda op, x, by: op.Mul(by, x), opset=21)
    written.register_onnx("Identity")

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return scaled(x, 3.0)

    table = opsmith.onnx_translations()
    assert scaled.overload in table and written.overload not in table
    x = torch.arange(3.0)
    program = torch.onnx.export(
        Model().eval(), (x,), dynamo=True, verbose=False, custom_translation_table=table
    )
    (name,) = [value.name for value in program.model.graph.inputs]
    (found,) = onnx.reference.ReferenceEvaluator(program.model_proto).run(None, {name: x.numpy()})
    assert found.tolist() == [0, 3, 6]

    with pytest.raises(ExportError, match="its standard form needs opset 14, and the export is of"):
        opsmith.onnx_translations(scaled, opset=13)
    with pytest.raises(
        ExportError,
        match=r"^onnx_table::written: writes into 'x', and torch\.onnx\.export by itself "
        r"replaces the calls of such operators\. Use opsmith\.export\.$",
    ):
        opsmith.onnx_translations(written)
