"""Tensors arrive as they were sent, however they lie in memory."""

import pytest
import torch

from opsmith.checks.isolation.wire import (
    Reader,
    WireError,
    describe_arguments,
    describe_result,
    element_bytes,
    memories_in,
    storage_bytes,
)
from opsmith.operators.core.arguments import read_arguments

BASE = torch.arange(24.0)
WAYS = {
    "contiguous": BASE.view(4, 6),
    "transposed": BASE.view(4, 6).t(),
    "sliced": BASE.view(4, 6)[1:, ::2],
    "expanded": BASE[:1].expand(3, 2),
    "one element with a gap": BASE[5:7:2],
    "one element in two dimensions with gaps": BASE.view(4, 6)[1:2, 1:2:2],
    "without a dimension": BASE[3],
    "empty": BASE[:0].view(0, 3),
    "complex": torch.view_as_complex(BASE.view(12, 2)).conj(),
    "one byte": BASE.to(torch.float8_e5m2)[::3],
    "boolean": BASE > 3,
}


@pytest.mark.parametrize("tensor", WAYS.values(), ids=WAYS)
def test_a_result_arrives_with_its_values(tensor):
    reader = Reader(element_bytes(tensor))
    came = reader.result(describe_result(tensor))
    reader.end()
    assert came.dtype == tensor.dtype
    assert torch.equal(came.to(torch.complex128), tensor.to(torch.complex128))


def _sent(arguments):
    data = b"".join(storage_bytes(tensor) for tensor in memories_in(arguments).values())
    return read_arguments(describe_arguments(arguments), Reader(data).take, "cpu")


@pytest.mark.parametrize("name", [name for name in WAYS if name != "complex"])
def test_an_argument_lies_in_memory_as_it_lay(name):
    tensor = WAYS[name]
    came = _sent({"x": tensor})["x"]
    assert came.stride() == tensor.stride()
    assert came.storage_offset() == tensor.storage_offset()
    assert came.untyped_storage().nbytes() == tensor.untyped_storage().nbytes()
    assert torch.equal(came.to(torch.float64), tensor.to(torch.float64))


def test_arguments_that_share_memory_share_it_there():
    x = torch.arange(6.0)
    came = _sent({"x": x[:4], "y": x[2:], "same": x, "again": [x, 2.0], "none": None})
    assert came["same"] is came["again"][0]
    came["x"][2] = -1.0
    assert came["y"][0] == came["same"][2] == -1.0


def test_bytes_that_are_missing_or_left_over_are_refused():
    described = describe_result(BASE)
    with pytest.raises(WireError, match="fewer bytes came"):
        Reader(b"123").result(described)
    reader = Reader(element_bytes(BASE) + b"1")
    reader.result(described)
    with pytest.raises(WireError, match="more bytes came"):
        reader.end()
