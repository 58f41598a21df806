"""Numbers near 0 and 1 stay in a model, whose optimizer drops what does nothing."""

import math
from pathlib import Path

import onnx
import onnxruntime
import torch
from onnxscript.rewriter import _matcher
from torch import Tensor, nn

import opsmith


class Near(nn.Module):
    def __init__(self, zero: float, one: float) -> None:
        super().__init__()
        self.zero, self.one = zero, one

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return 1 / (x + self.zero), 1 / (x - self.zero), (x + 1) * self.one, (x + 1) / self.one


def exported(model: nn.Module, folder: Path) -> str:
    opsmith.export(model, (torch.ones(3),), target="onnx", out=folder, verify=False, say=None)
    return str(folder / "model.onnx")


def test_numbers_near_0_and_1_are_neither(tmp_path):
    model = Near(1e-8, 1.000001)
    x = torch.zeros(3)
    session = onnxruntime.InferenceSession(exported(model, tmp_path / "near"))
    for given, right in zip(session.run(None, {"x": x.numpy()}), model(x), strict=True):
        assert right.isfinite().all() and right[0] not in (0, 1)
        torch.testing.assert_close(torch.from_numpy(given), right, rtol=1e-7, atol=0)


def test_what_does_nothing_is_dropped(tmp_path):
    graph = onnx.load(exported(Near(0.0, 1.0), tmp_path / "nothing")).graph
    kinds = [node.op_type for node in graph.node]
    assert kinds.count("Add") == 1, "of x + 1"
    assert not {"Sub", "Mul", "Div"} & set(kinds)


def test_the_optimizer_is_as_it_was_afterwards(tmp_path):
    exported(Near(1e-8, 1.0), tmp_path / "near")
    assert _matcher.math is math
