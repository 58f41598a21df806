"""Calls of an artifact, through ``run.py`` and `opsmith.load`, of a model that selects rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from handmade import digest, write
from torch._subclasses import FakeTensorMode

import opsmith
from opsmith.targets.exporting.artifact import MANIFEST
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


INDEX = torch.tensor([0, 2])


@pytest.mark.parametrize(
    "x",
    [
        torch._neg_view(torch.ones(5, 3)),
        torch.complex(torch.ones(5, 3), torch.eye(5, 3)).conj().imag,
    ],
)
def test_an_input_that_is_negated_when_read_arrives_as_it_is_read(folder: Path, x: Any) -> None:
    (found,) = opsmith.load(folder).run([x, INDEX])
    assert found.tolist() == x[INDEX].tolist()


WITHOUT_VALUES = {
    "FakeTensor": lambda call: call(FakeTensorMode().from_tensor(torch.ones(5, 3))),
    "Tensor": lambda call: torch.func.functionalize(call)(torch.ones(5, 3)),
    "vmap": lambda call: torch.vmap(call)(torch.ones(2, 5, 3)),
    "zeros": lambda call: call(torch._efficientzerotensor((5, 3))),
}


@pytest.mark.parametrize("attempt", WITHOUT_VALUES.values(), ids=WITHOUT_VALUES)
def test_a_tensor_without_values_is_refused_and_not_read(folder: Path, attempt: Any) -> None:
    model = opsmith.load(folder)
    with pytest.raises(opsmith.ArgumentError) as caught:
        attempt(lambda x: model(x, INDEX))
    kind = "FakeTensor" if "Fake" in str(caught.value) else "Tensor"
    assert str(caught.value) == (
        f"{folder}: input 'x' is a {kind} without values, expected a dense tensor: torch.export "
        "and other tracing cannot carry a loaded model."
    )


class Selects(torch.nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> Any:
        return self.model(x + 1, INDEX) * 2


def test_torch_compile_breaks_its_graph_at_a_loaded_model(folder: Path) -> None:
    compiled = torch.compile(Selects(opsmith.load(folder)), backend="eager")
    assert compiled(torch.ones(5, 3)).tolist() == [[4, 4, 4], [4, 4, 4]]


def test_torch_export_is_told_that_it_cannot_carry_a_loaded_model(folder: Path) -> None:
    with pytest.raises(opsmith.ArgumentError, match="cannot carry a loaded model"):
        torch.export.export(Selects(opsmith.load(folder)), (torch.ones(5, 3),), strict=False)


@pytest.mark.parametrize(
    ("feed", "said"),
    [
        ({"x": X}, "input 'index' is missing; there are x"),
        ({"x": X > 0, "index": np.array([0])}, "input 'x' has dtype bool, expected float32"),
        ({"x": X, "index": np.array(0)}, "input 'index' has 0 dimensions, expected 1"),
        ({"x": None, "index": np.array([0])}, "input 'x' is NoneType, expected an array"),
        (
            {"x": X.T, "index": np.array([0])},
            "input 'x' has size 5 in dimension 1, expected 3, as the model has",
        ),
    ],
)
def test_run_py_names_the_input_that_onnxruntime_does_not_take(
    folder: Path, feed: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match="input") as caught:
        standalone.load(folder).run(None, feed)
    assert str(caught.value) == said


def test_run_py_names_the_inputs_whose_sizes_do_not_fit_each_other(tmp_path: Path) -> None:
    from onnx import TensorProto, helper, save

    x, bias, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
        for name, dims in (("x", ["N", "C"]), ("bias", ["C"]), ("y", ["N", "C"]))
    )
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "bias"], ["y"])], "biased", [x, bias], [y]
    )
    opset = [helper.make_opsetid("", 20)]
    save(helper.make_model(graph, opset_imports=opset, ir_version=9), tmp_path / "model.onnx")
    session = standalone._session_class()(tmp_path / "model.onnx")
    # ONNX Runtime alone would broadcast a size of 1.
    for size in (4, 1):
        with pytest.raises(ValueError, match="'bias'") as caught:
            session.run(None, {"x": X, "bias": np.ones(size, np.float32)})
        assert str(caught.value) == (
            f"input 'bias' has size {size} in dimension 0, expected 3, "
            "as dimension 1 of input 'x' has"
        )


def test_run_py_names_an_input_that_is_stored_as_objects(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=X, index=np.array([None]))
    with pytest.raises(ValueError, match="input 'index': Object arrays cannot be loaded"):
        standalone._read(str(tmp_path / "in.npz"))
