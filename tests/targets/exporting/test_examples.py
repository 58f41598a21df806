"""What the example arguments of a model may be, whatever models are exported to."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import opsmith
from opsmith import ExportError
from opsmith.targets import ModelTarget, all_targets, prepare

MODELS = [target.name for target in all_targets() if isinstance(target, ModelTarget)]
ROUTES = [*((name, {}) for name in MODELS), ("onnxruntime", {"exporter": "torchscript"})]


class Difference(nn.Module):
    """Tells its two inputs, and its parameter, apart."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.weight * a - 2 * b


@pytest.mark.long
@pytest.mark.parametrize(("target", "options"), ROUTES, ids=lambda value: str(value))
def test_one_tensor_given_twice_is_two_inputs(tmp_path, target: str, options: dict[str, Any]):
    x, out = torch.ones(3), tmp_path / "dist"
    opsmith.export(Difference(), (x, x), target=target, out=out, say=None, **options)
    model = opsmith.load(out)
    found = model(torch.tensor([1.0, 1.0, 1.0]), torch.tensor([0.0, 1.0, 10.0]))
    assert found.tolist() == [1.0, 0.0, -17.0]


def test_a_parameter_of_the_model_given_as_its_input_stays_a_parameter():
    model = Difference()
    prepared = prepare(model, (model.weight,), {"b": model.weight})
    assert [spec.name for spec in prepared.inputs] == ["a", "b"]
    run = prepared.program.module()
    assert run(torch.ones(3), b=torch.zeros(3)).tolist() == [1.0, 2.0, 3.0]
    # The example is still the user's: equal, and differentiable where it was.
    assert torch.equal(prepared.args[0], model.weight)
    assert prepared.args[0].requires_grad and prepared.args[0].is_leaf


def test_a_program_that_was_traced_with_one_tensor_for_two_inputs_is_refused():
    x = torch.ones(3)
    confused = torch.export.export(Difference(), (x, x))
    with pytest.raises(ExportError) as caught:
        prepare(confused)
    assert str(caught.value) == (
        "the ExportedProgram was traced with one tensor for the inputs 'a' and 'b', and "
        "torch.export reads one input for all of them. Trace it with a copy for each: "
        "example.clone()"
    )
    prepare(torch.export.export(Difference(), (x, x.clone())))
    # Other tensors, given later, do not mend what was traced.
    with pytest.raises(ExportError, match="traced with one tensor"):
        prepare(confused, (x, x.clone()))
