"""Calls of an artifact's ``run.py`` and of `opsmith.load`, for a model that selects rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handmade import digest, write

import opsmith
from opsmith.targets.artifact import MANIFEST
from opsmith.targets.onnxruntime import standalone

pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that returns ``x[index]``."""
    from onnx import TensorProto, helper, save

    tensor, x, index = helper.make_tensor_value_info, TensorProto.FLOAT, TensorProto.INT64
    graph = helper.make_graph(
        [helper.make_node("Gather", ["x", "index"], ["y"])],
        "rows",
        [tensor("x", x, ["N", 3]), tensor("index", index, ["K"])],
        [tensor("y", x, ["K", 3])],
    )
    opset = [helper.make_opsetid("", 20)]
    folder = tmp_path_factory.mktemp("rows") / "dist"
    manifest = write(folder)
    save(helper.make_model(graph, opset_imports=opset, ir_version=9), folder / "model.onnx")
    manifest["inputs"].append({"name": "index", "dtype": "int64", "shape": ["K"]})
    manifest["outputs"] = [{"name": "y", "dtype": "float32", "shape": ["K", 3]}]
    manifest["dims"]["K"] = [0, None]
    manifest["call"] = {"in_spec": "", "out_spec": "", "in_leaves": [0, 1], "out_leaves": [0]}
    manifest["details"]["libraries"] = []
    manifest["files"] = {"model.onnx": digest(folder / "model.onnx")}
    (folder / MANIFEST).write_text(json.dumps(manifest))
    return folder


X = np.arange(15, dtype=np.float32).reshape(5, 3)


@pytest.mark.parametrize("order", ["<", ">"])
def test_arrays_of_either_byte_order_are_read_as_their_numbers(folder: Path, order: str) -> None:
    x, index = X.astype(f"{order}f4"), np.array([3, -1], dtype=f"{order}i8")
    (found,) = standalone.load(folder).run(None, {"x": x, "index": index})
    assert found.tolist() == X[[3, 4]].tolist()


def test_opsmith_load_says_which_input_has_another_byte_order(folder: Path) -> None:
    with pytest.raises(opsmith.ArgumentError, match=r"input 'x' is an array of dtype >f4, exp"):
        opsmith.load(folder).run([X.astype(">f4"), np.array([0])])


@pytest.mark.parametrize("load", [standalone.load, opsmith.load])
def test_an_index_out_of_bounds_is_an_index_error_as_in_pytorch(folder: Path, load: Any) -> None:
    session = load(folder)
    index = np.array([0, 5])
    with pytest.raises(IndexError, match="idx=5 must be within the inclusive range"):
        session.run([X, index]) if load is opsmith.load else session.run(
            None, {"x": X, "index": index}
        )
