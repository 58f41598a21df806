"""ONNX Runtime has no Shape of float8, so an export says which sizes have to be fixed."""

import pytest
import torch

import opsmith
from opsmith.errors import ExportError


@pytest.mark.slow
def test_sizes_of_a_float8_tensor_that_may_change_are_refused_by_name(tmp_path):
    class Ones(torch.nn.Module):
        def forward(self, by):
            return by.to(torch.float32) + torch.ones(by.shape[0], 1)

    by = torch.ones(3, 4).to(torch.float8_e4m3fn)
    n = torch.export.Dim("N", min=2, max=64)
    settings = {"target": "onnxruntime", "verify": False, "say": None}
    with pytest.raises(ExportError) as caught:
        opsmith.export(Ones(), (by,), out=tmp_path / "a", dynamic_shapes=({0: n},), **settings)
    assert "'by' is float8, and its sizes may change: ONNX Runtime has no Shape" in str(
        caught.value
    )
    opsmith.export(Ones(), (by,), out=tmp_path / "b", **settings)
