"""The generated adapter against ONNX Runtime's C interface, and against one that has moved."""

from __future__ import annotations

import ctypes
from pathlib import Path

import onnx
import onnxruntime
import ort_operators as ops
import pytest
import torch
from onnx import TensorProto, helper

from opsmith.targets.onnxruntime import library

pytestmark = pytest.mark.slow  # three libraries for ONNX Runtime

POSITIONS = 300
TABLE = ctypes.c_void_p * POSITIONS
GET_API = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)
GET_VERSION = ctypes.CFUNCTYPE(ctypes.c_void_p)
VERSION = ctypes.create_string_buffer(b"9.9")


class ApiBase(ctypes.Structure):
    _fields_ = (("GetApi", GET_API), ("GetVersionString", GET_VERSION))


def real_table() -> ctypes.Array[ctypes.c_void_p]:
    """ONNX Runtime's own functions."""
    folder = Path(onnxruntime.__file__).parent / "capi"
    loaded = [ctypes.CDLL(str(path)) for path in folder.glob("*onnxruntime*.so*")]
    get_base = next(one.OrtGetApiBase for one in loaded if hasattr(one, "OrtGetApiBase"))
    get_base.restype = ctypes.POINTER(ApiBase)
    return TABLE.from_buffer_copy(TABLE.from_address(get_base().contents.GetApi(18)))


def register(table: ctypes.Array[ctypes.c_void_p] | None, newest: int = 99) -> str:
    """What `RegisterCustomOps` says to an ONNX Runtime with this table."""
    real = real_table()
    address = 0 if table is None else ctypes.addressof(table)
    oldest = ctypes.addressof(real)
    base = ApiBase(
        GET_API(lambda version: address if version <= newest and address else oldest)
        if newest == 99
        else GET_API(lambda version: oldest if version <= newest else 0),
        GET_VERSION(lambda: ctypes.addressof(VERSION)),
    )
    path = library.build(library.kernel_of(ops.reverse))
    loaded = ctypes.CDLL(str(path))
    loaded.RegisterCustomOps.restype = ctypes.c_void_p
    status = loaded.RegisterCustomOps(None, ctypes.byref(base))
    if not status:
        return ""
    message = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)(real[2])
    return message(status).decode()


@pytest.mark.parametrize(
    ("position", "other", "words"),
    [
        (61, 60, "a shape does not hold what was put into it"),  # GetDimensionsCount
        (64, 61, "a shape does not hold what was put into it"),  # GetTensorShapeElementCount
        (274, None, "it has no function KernelContext_ParallelFor"),
    ],
)
def test_a_table_that_has_moved_is_noticed(position, other, words, capfd):
    table = real_table()
    table[position] = table[other] if other is not None else None
    message = register(table)
    assert "ort_test::reverse: this ONNX Runtime (9.9) is not laid out as opsmith knows" in message
    assert words in message and words in capfd.readouterr().err


def test_an_onnx_runtime_that_is_too_old_is_told_so():
    assert register(None, newest=17) == "opsmith: this operator needs ONNX Runtime 1.18 or newer"


def session(node: onnx.NodeProto, dtype: int = TensorProto.FLOAT) -> onnxruntime.InferenceSession:
    """A model of one node of `everything`, made without opsmith."""
    inputs = [helper.make_tensor_value_info("x", dtype, ["N", 3])]
    if "index" in node.input:
        inputs.append(helper.make_tensor_value_info("index", TensorProto.INT64, ["N"]))
    outputs = [
        helper.make_tensor_value_info("out", dtype, None),
        helper.make_tensor_value_info("rows", TensorProto.INT64, None),
    ]
    model = helper.make_model(
        helper.make_graph([node], "graph", inputs, outputs),
        opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("ort_test", 1)],
        ir_version=9,
    )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    path = library.build(library.kernel_of(ops.everything))
    options.register_custom_ops_library(str(path))
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def node(*inputs: str, **changed: object) -> onnx.NodeProto:
    attributes = {"k": 1, "on": 1, "sizes": [1], "weights": [0.5, 0.25], "scale": 1.0}
    attributes |= {"mode": "plain", "flags": [1], "shift": 0.0, "opsmith_counts": [-1, -1, 0, -1]}
    attributes |= changed
    given = {key: value for key, value in attributes.items() if value is not None}
    return helper.make_node("everything", inputs, ["out", "rows"], domain="ort_test", **given)


def test_a_node_that_lacks_an_attribute_is_refused_when_the_model_is_loaded():
    with pytest.raises(Exception, match="everything: the node lacks the attribute 'k'"):
        session(node("x", k=None))
    with pytest.raises(Exception, match="the node lacks the attribute 'opsmith_counts'"):
        session(node("x", opsmith_counts=[1]))


def test_a_node_with_fewer_tensors_than_it_says():
    made = session(node("x", opsmith_counts=[-1, -1, 2, -1]))
    x = torch.ones(2, 3).numpy()
    with pytest.raises(Exception, match="ort_test::everything: argument 'others' is incomplete"):
        made.run(None, {"x": x})


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("fail", "ort_test::everything: asked to fail with k=1"),
        ("throw", "ort_test::everything: thrown in the middle"),
        ("throw in a thread", "ort_test::everything: thrown in a thread"),
    ],
)
def test_an_exception_in_the_kernel_is_an_error_of_the_run(mode, words):
    made = session(node("x", mode=mode))
    for _ in range(2):
        with pytest.raises(Exception, match=words):
            made.run(None, {"x": torch.ones(2, 3).numpy()})


def test_arguments_are_checked_as_in_pytorch():
    made = session(node("x", "index", opsmith_counts=[-1, 1, 0, -1]))
    x, index = torch.ones(2, 3), torch.tensor([0, 2])
    with pytest.raises(Exception, match="ort_test::everything") as caught:
        made.run(None, {"x": x.numpy(), "index": index.numpy()})
    with pytest.raises(RuntimeError) as same:
        ops.everything(x, None, index, [], None, 1, True, [1], (0.5, 0.25))
    assert str(same.value) in str(caught.value)


def test_a_dtype_that_the_kernel_does_not_have_is_an_error_not_a_crash():
    made = session(node("x"), TensorProto.FLOAT16)
    with pytest.raises(Exception, match="the cpu kernel has no float16; it has float32, float64"):
        made.run(None, {"x": torch.ones(2, 3).half().numpy()})
    made = session(node("x"), TensorProto.INT32)
    with pytest.raises(Exception, match="argument 'x' has dtype int32, expected one of float16"):
        made.run(None, {"x": torch.ones(2, 3).int().numpy()})
