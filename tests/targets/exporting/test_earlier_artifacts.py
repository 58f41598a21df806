"""Artifacts of manifest version 1, written by hand as opsmith wrote them then, still load."""

from __future__ import annotations

import hashlib
import json
import platform
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import opsmith
from opsmith import ArtifactError
from opsmith.targets.exporting.artifact import MANIFEST, Artifact

NO_ARGUMENTS = '{"type": "builtins.dict", "context": "[]", "children_spec": []}'
ONE_TENSOR = '{"type": null, "context": null, "children_spec": []}'


def in_spec(count: int) -> str:
    leaves = ", ".join([ONE_TENSOR] * count)
    inner = f'{{"type": "builtins.tuple", "context": "null", "children_spec": [{leaves}]}}'
    pair = f'"children_spec": [{inner}, {NO_ARGUMENTS}]'
    return f'[1, {{"type": "builtins.tuple", "context": "null", {pair}}}]'


def write_manifest(folder: Path, target: str, details: Any, **facts: Any) -> None:
    """The manifest of a model that takes x of shape (N, 3), and returns one tensor of that."""
    files = {
        path.relative_to(folder).as_posix(): {
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "size": path.stat().st_size,
        }
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    spec = {"dtype": "float32", "shape": ["N", 3]}
    manifest = {
        "manifest": 1,
        "target": target,
        "versions": {"opsmith": "0.1.0", "torch": "2.13.0", "python": "3.11.7"},
        "inputs": [{"name": "x", **spec}],
        "outputs": [{"name": "output", **spec}],
        "dims": {"N": [1, None]},
        "call": {
            "in_spec": in_spec(1),
            "out_spec": f"[1, {ONE_TENSOR}]",
            "in_leaves": [0],
            "out_leaves": [0],
        },
        "operators": [{"name": "ns::op", "form": "inline", "count": 2, "note": "its reference"}],
        "details": details,
        "agreement": {"samples": 6, "largest": 1e-7, "output": "output"},
        "files": files,
        **facts,
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")


def write_onnx(folder: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    inputs, outputs = (
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", 3])]
        for name in ("x", "output")
    )
    node = helper.make_node("Neg", ["x"], ["output"])
    graph = helper.make_graph([node], "model", inputs, outputs)
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), folder / "model.onnx")


DETAILS = {"model": "model.onnx", "opset": 18, "exporter": "dynamo"}
HERE = f"{platform.system()}-{platform.machine()}"
EARLIER = {
    "onnx": DETAILS,
    "onnxruntime": {
        **DETAILS,
        "libraries": [],
        "operators": {},
        "platform": HERE,
        "processor": [],
    },
}


@pytest.mark.parametrize("target", EARLIER)
def test_an_onnx_artifact_of_version_1_is_loaded_and_called(tmp_path, target):
    if target == "onnxruntime":
        pytest.importorskip("onnxruntime")
    write_onnx(tmp_path)
    write_manifest(tmp_path, target, EARLIER[target])
    model = opsmith.load(tmp_path)
    assert model.artifact.manifest.kind == "model"
    x = torch.arange(6.0).reshape(2, 3)
    assert torch.equal(model(x), -x)
    with pytest.raises(opsmith.ArgumentError, match=r"expected 3: the model was exported for this"):
        model(torch.ones(2, 4))
    (tmp_path / "model.onnx").write_bytes(b"")
    with pytest.raises(ArtifactError, match=r"model\.onnx is not the file that was exported"):
        opsmith.load(tmp_path)


@pytest.mark.long
def test_an_aotinductor_artifact_of_version_1_is_loaded_and_called(tmp_path):
    out = tmp_path / "dist"
    opsmith.export(
        nn.ReLU(), (torch.ones(2, 3),), target="aotinductor", out=out, verify=False, say=None
    )
    # The compiled part is as it was; only what the manifest said of it differs.
    now = Artifact.open(out).manifest
    (out / MANIFEST).unlink()
    details = {
        "model": "model.pt2",
        "libraries": [],
        "device": "cpu",
        "inputs": [{"order": [0, 1], "written": 0}],
        "sizes": {},
        "machine": {"architecture": platform.machine(), "march": "generic", "features": []},
    }
    fixed = {"shape": [2, 3], "dtype": "float32"}
    tensors = {"inputs": [{"name": "input", **fixed}], "outputs": [{"name": "output", **fixed}]}
    write_manifest(out, "aotinductor", details, dims={}, **tensors)
    assert set(Artifact.open(out).manifest.files) == set(now.files)
    model = opsmith.load(out)
    assert torch.equal(model(torch.full((2, 3), -1.0)), torch.zeros(2, 3))


def test_operators_for_a_target_of_models_are_not_loaded(tmp_path):
    pytest.importorskip("onnx")
    write_onnx(tmp_path)
    write_manifest(tmp_path, "onnx", DETAILS, manifest=2, kind="operators")
    with pytest.raises(ArtifactError, match=r"holds operators, which the target 'onnx' \(ONNX"):
        opsmith.load(tmp_path)


def test_an_artifact_of_a_later_opsmith_says_what_to_do(tmp_path):
    write_manifest(tmp_path, "onnx", {}, manifest=3)
    words = r"version 3, and this opsmith reads versions 1 and 2\. Export again, or install the op"
    with pytest.raises(ArtifactError, match=words):
        opsmith.load(tmp_path)


def test_an_artifact_whose_target_is_not_here_names_those_that_are(tmp_path):
    write_manifest(tmp_path, "abacus", {})
    with pytest.raises(opsmith.OpsmithError, match="no target 'abacus'; there are aotinductor, "):
        opsmith.load(tmp_path)
