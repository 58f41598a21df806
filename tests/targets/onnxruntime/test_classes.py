"""Models that hold objects of custom classes: fields become initializers and attributes."""

from __future__ import annotations

import custom_class_samples as samples
import onnx
import pytest
import torch
from torch import nn

import opsmith
from examples.identity_model.identity_model import IdentityModel

EXPORTERS = ["dynamo", "torchscript"]
FORMS = ["library", "inline"]
ROWS = {0: torch.export.Dim("rows")}


class Holds(nn.Module):
    """Calls an object as `call` says."""

    def __init__(self, held, call):
        super().__init__()
        self.held = held
        self.call = call

    def forward(self, x):
        return self.call(self.held, x)


def graph(loaded):
    return onnx.load(loaded.artifact.path("model.onnx")).graph


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("form", FORMS)
def test_tensors_are_initializers_and_numbers_attributes(export, exporter, form):
    weight = torch.randn(20)
    model = Holds(samples.Scale(20, weight, 1.5), lambda held, x: held.forward(x) + 1)
    x = torch.randn(4, 20)
    loaded = export(model, (x,), exporter=exporter, form=form, dynamic_shapes=(ROWS,))
    x = torch.randn(7, 20)
    torch.testing.assert_close(loaded(x), x * weight * 1.5 + 1)
    found = graph(loaded)
    (held,) = [v for v in found.initializer if list(v.dims) == [20]]
    assert onnx.numpy_helper.to_array(held).tolist() == weight.tolist()
    nodes = {node.op_type: node for node in found.node}
    if form == "library":
        attributes = {a.name: a for a in nodes["Scale_forward"].attribute}
        assert (attributes["channels"].i, attributes["factor"].f) == (20, 1.5)
    else:
        assert all(node.domain == "" for node in found.node)


@pytest.mark.slow
@pytest.mark.parametrize("exporter", EXPORTERS)
def test_two_objects_of_a_class_keep_their_own_fields(export, exporter):
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = samples.Scale.ramp(3)
            self.second = samples.Scale(3, torch.ones(3), 10.0)

        def forward(self, x):
            return self.second.forward(self.first.forward(x)) + self.first.get_channels()

    loaded = export(Both(), (torch.randn(4, 3),), exporter=exporter)
    wanted = torch.ones(4, 3) * torch.arange(1.0, 4.0) * 2 * 10 + 3
    torch.testing.assert_close(loaded(torch.ones(4, 3)), wanted)


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_fields_of_every_kind_inline(export, exporter):
    held = samples.everything(maybe=torch.tensor([5.0, 7.0]))
    model = Holds(held, lambda held, x: held.forward(x, 3, bias=True))
    loaded = export(model, (torch.randn(4, 2),), exporter=exporter)
    assert [use.form for use in loaded.artifact.manifest.operators] == ["inline"]
    wanted = torch.ones(4, 2) * 3 + 1 + 2 + 100 + torch.tensor([5.0, 7.0])
    torch.testing.assert_close(loaded(torch.ones(4, 2)), wanted)


@pytest.mark.long
@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("form", FORMS)
def test_the_identity_model(export, exporter, form):
    x = torch.randn(2, 3, 4, 5)
    loaded = export(IdentityModel(3).eval(), (x,), exporter=exporter, form=form)
    assert torch.equal(loaded(x), x)


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_method_that_changes_its_object_is_refused(tmp_path, exporter):
    counter = samples.Counter(0, torch.zeros(3))
    model = Holds(counter, lambda held, x: held.forward(x))
    with pytest.raises(opsmith.ExportError) as raised:
        opsmith.export(
            model, (torch.ones(2, 3),), target="onnxruntime", out=tmp_path / "dist",
            say=None, exporter=exporter,
        )  # fmt: skip
    assert "class_samples::Counter.forward changes 'count'" in str(raised.value)
    assert counter.count == 0 and not (tmp_path / "dist").exists()


@pytest.mark.slow
@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_program_in_place_of_a_module(export, exporter):
    linear = nn.Linear(20, 3)
    x = torch.randn(4, 20)
    program = torch.export.export(linear, (x,), dynamic_shapes=(ROWS,))
    loaded = export(program, None, exporter=exporter)
    x = torch.randn(7, 20)
    torch.testing.assert_close(loaded(x), linear(x))
