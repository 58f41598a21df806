import torch
from torch import nn
from torch.onnx._internal.exporter._registration import onnxscript_apis

import opsmith


def test_its_library_is_parsed_once_a_process_and_looked_up_as_before_afterwards(
    tmp_path, monkeypatch
):
    parsed = []
    parse = onnxscript_apis.get_torchlib_ops

    def counted() -> object:
        parsed.append(parse())
        return parsed[-1]

    monkeypatch.setattr(onnxscript_apis, "get_torchlib_ops", counted)
    model, inputs = nn.ReLU(), (torch.ones(3),)
    for name in ("once", "twice"):
        out = tmp_path / name
        opsmith.export(model, inputs, target="onnx", out=out, verify=False, say=None)
    assert len(parsed) == 1
    assert onnxscript_apis.get_torchlib_ops is counted
    torch.onnx.export(model, inputs, dynamo=True, verbose=False)
    assert len(parsed) == 2, "an export that is none of ours parses it, as without opsmith"
