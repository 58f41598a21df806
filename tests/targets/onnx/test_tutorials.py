"""What the tutorials on ONNX have people write, with opsmith in place of what they do by hand."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn

import opsmith
from opsmith import ArtifactError, ExportError, philox

pytestmark = pytest.mark.slow(cases=2)

EXPORTERS = ("dynamo", "torchscript")


class MyAdd(torch.autograd.Function):
    """As it stands there: a constant of integers, in the forward and in the symbolic."""

    @staticmethod
    def forward(ctx, a, b):
        return torch.tensor([2]) * a + b

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad, grad

    @staticmethod
    def symbolic(g, a, b):
        two = g.op("Constant", value_t=torch.tensor([2]))
        a = g.op("Mul", a, two)
        return g.op("Add", a, b)


class Custom(torch.autograd.Function):
    """Mapped to a node of a runtime of the author's."""

    @staticmethod
    def forward(ctx, a, b):
        return 2 * a + b

    @staticmethod
    def symbolic(g, a, b):
        return g.op("custom::my_add", a, b, factor_f=2.0)


class Apply(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.function.apply(a, b)


INPUTS = (torch.randn(2, 3), torch.randn(2, 3))


@pytest.fixture(scope="module", autouse=True)
def adopted():
    opsmith.adopt(MyAdd, "onnx_tutorials::my_add")
    opsmith.adopt(Custom, "onnx_tutorials::custom")


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("form", ["standard", "inline"])
def test_integers_beside_floats_are_promoted_as_in_pytorch(tmp_path, exporter, form):
    artifact = opsmith.export(
        Apply(MyAdd),
        INPUTS,
        target="onnxruntime",
        out=tmp_path / "dist",
        form=form,
        exporter=exporter,
        say=None,
    )
    assert [use.form for use in artifact.manifest.operators] == [form]
    assert artifact.manifest.agreement.samples > 1


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_node_of_a_foreign_domain_is_written_and_said_to_be_unverified(tmp_path, exporter):
    said: list[str] = []
    artifact = opsmith.export(
        Apply(Custom),
        INPUTS,
        target="onnx",
        out=tmp_path / "dist",
        exporter=exporter,
        say=said.append,
    )
    (node,) = onnx.load(artifact.path("model.onnx")).graph.node
    assert (node.domain, node.op_type) == ("custom", "my_add")
    assert artifact.manifest.agreement is None
    reason = "ONNX does not define custom::my_add, so that nothing here can run the model."
    assert any(line.startswith(f"not compared with PyTorch: {reason}") for line in said)
    assert f"**Not verified:** {reason}" in artifact.path("README.md").read_text()
    with pytest.raises(ArtifactError, match="has nodes that ONNX does not define"):
        opsmith.load(tmp_path / "dist")


class Named(torch.autograd.Function):
    """Mapped to a node that has the operator's own name, as the tutorial does."""

    @staticmethod
    def forward(ctx, a, b):
        return 2 * a + b

    @staticmethod
    def symbolic(g, a, b):
        return g.op("onnx_tutorials::named", a, b)


class Renamed(Named):
    """Another operator, mapped to the same node."""


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_node_may_be_named_as_its_operator_or_as_another(tmp_path, exporter):
    opsmith.adopt(Named, "onnx_tutorials::named")
    opsmith.adopt(Renamed, "onnx_tutorials::renamed")
    for number, function in enumerate((Named, Renamed, Named)):
        out = tmp_path / str(number)
        model = Apply(function)
        opsmith.export(model, INPUTS, target="onnx", out=out, exporter=exporter, say=None)
        (node,) = onnx.load(out / "model.onnx").graph.node
        assert (node.domain, node.op_type) == ("onnx_tutorials", "named")


def test_onnx_runtime_refuses_a_node_that_no_library_defines(tmp_path):
    with pytest.raises(ExportError) as caught:
        opsmith.export(Apply(Custom), INPUTS, target="onnxruntime", out=tmp_path / "dist", say=None)
    assert str(caught.value).startswith("the model has nodes custom::my_add, which a symbolic")
    assert 'form="inline"' in str(caught.value)


def test_every_artifact_of_onnx_says_what_it_is(tmp_path):
    artifact = opsmith.export(Apply(MyAdd), INPUTS, target="onnx", out=tmp_path / "dist", say=None)
    text = artifact.path("README.md").read_text()
    assert "`model.onnx` is of opset 20" in text
    assert "- `a: float32 (2, 3)`" in text and "Outputs:" in text
    assert "- `onnx_tutorials::my_add`: standard" in text


def test_an_exporters_error_names_the_node_and_its_line(tmp_path):
    class Wrapped(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.long() % x.shape[0]

    with pytest.raises(ExportError) as caught:
        opsmith.export(
            Wrapped(),
            (torch.randn(4, 3),),
            target="onnx",
            out=tmp_path / "dist",
            dynamic_shapes=({0: torch.export.Dim("n", min=2)},),
            say=None,
        )
    message = str(caught.value)
    assert message.startswith("torch.onnx could not translate aten.remainder.Scalar(%")
    assert "not 'SymbolicTensor'" in message
    assert f"\n  at {__file__}:" in message
    assert message.endswith(": return x.long() % x.shape[0]")


def test_a_model_that_draws_is_told_to_take_its_numbers(tmp_path):
    @opsmith.op("onnx_draws::noise")
    def noise(x: Float[Tensor, "N"], rng: opsmith.Philox = None) -> Float[Tensor, "N"]:
        return x * philox.uniform(rng, x.shape)

    class Noisy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return noise(x)

    with pytest.raises(ExportError, match="it draws random numbers; have the model take them"):
        opsmith.export(
            Noisy(), (torch.ones(3),), target="onnx", out=tmp_path / "dist", form="inline", say=None
        )


OUTSIDE = torch.tensor([1.0, 2.0, 4.0])


@opsmith.op("onnx_tutorials::constants")
def constants(x: Float[Tensor, "N 3"]) -> Float[Tensor, "N 3"]:
    rows = torch.tensor([[True, False, True]])
    return torch.where(rows, x * OUTSIDE.to(x.dtype), x + torch.tensor([0.5], dtype=x.dtype))


class Constants(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return constants(x)


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_constants_of_a_reference_are_inlined(tmp_path, exporter):
    artifact = opsmith.export(
        Constants(),
        (torch.randn(2, 3),),
        target="onnx",
        out=tmp_path / "dist",
        form="inline",
        exporter=exporter,
        say=None,
    )
    assert artifact.manifest.agreement.largest == 0


def test_a_large_constant_of_a_reference_is_refused(tmp_path):
    many = torch.randn(2000)

    @opsmith.op("onnx_tutorials::large")
    def large(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x + many.sum()

    class Large(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return large(x)

    with pytest.raises(ExportError, match="uses a constant of 2000 elements"):
        opsmith.export(
            Large(), (torch.randn(2),), target="onnx", out=tmp_path / "dist", form="inline"
        )
