"""A model that gives memory for results is exported as one that calls the operator and copies."""

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith.targets.exporting.tracing import prepare


@opsmith.op("exported_outs::doubled")
def doubled(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2


class IntoMemory(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        memory = torch.empty_like(x)
        doubled.out(x, out=memory)
        return memory + 1


@pytest.mark.parametrize("given", ["module", "program"])
def test_a_program_calls_the_operator_itself(given: str) -> None:
    x = torch.arange(3.0)
    program = torch.export.export(IntoMemory(), (x,))
    assert any(node.target is doubled.out for node in program.graph.nodes)
    model = prepare(program if given == "program" else IntoMemory(), (x,))
    targets = [node.target for node in model.program.graph.nodes]
    assert doubled.overload in targets and doubled.out not in targets
    assert model.program.module()(x).tolist() == [1.0, 3.0, 5.0]
