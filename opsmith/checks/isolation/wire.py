"""Arguments and results as bytes: a description in JSON, then the elements.

Data from the kernel's process is untrusted. Every announced size is compared with the received
bytes, and nothing is unpickled. Arguments are read by `core.arguments.read_arguments`, so that a
process that reads them need not import the checks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.cases.layouts import bits
from opsmith.errors import OpsmithError
from opsmith.operators.core.arguments import DTYPES, dtype_name, every_tensor_in, memory_of
from opsmith.signature import Signature
from opsmith.system.processes.supervisor_client import GarbledError

#: Largest number of dimensions of a result.
_MOST_DIMENSIONS = 64


class WireError(OpsmithError, GarbledError):
    """Received bytes are malformed, or a value cannot be sent."""


def storage_bytes(tensor: Tensor) -> bytes:
    """Return all bytes of a tensor's storage, including elements that its strides skip."""
    storage = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return storage.set_(tensor.untyped_storage()).cpu().numpy().tobytes()


def memories_in(arguments: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the first tensor in each storage of a call, by name."""
    found: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in every_tensor_in(arguments):
        found.setdefault(memory_of(tensor), (name, tensor))
    return dict(found.values())


def written_memories(signature: Signature, arguments: Mapping[str, Any]) -> list[str]:
    """Return the names of the tensors of `memories_in` whose storage the operator may write."""
    mutated = {parameter.name for parameter in signature.mutated}
    written = {
        memory_of(tensor)
        for name, tensor in every_tensor_in(arguments)
        if name.partition("[")[0] in mutated
    }
    return [name for name, one in memories_in(arguments).items() if memory_of(one) in written]


def describe_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Describe arguments in JSON; the bytes of `memories_in` are sent afterwards, in that order.

    `read_arguments` creates them again.
    """
    tensors: dict[int, str] = {}
    memories = {memory_of(tensor): name for name, tensor in memories_in(arguments).items()}

    def describe(name: str, value: Any) -> dict[str, Any]:
        if isinstance(value, Tensor):
            first = tensors.setdefault(id(value), name)
            if first != name:
                return {"kind": "same", "name": first}
            return {
                "kind": "tensor",
                "dtype": dtype_name(value.dtype),
                "shape": list(value.shape),
                "strides": list(value.stride()),
                "offset": value.storage_offset(),
                "bytes": value.untyped_storage().nbytes(),
                "memory": memories[memory_of(value)],
            }
        if isinstance(value, complex):
            return {"kind": "complex", "parts": [value.real, value.imag]}
        if value is None or isinstance(value, bool | int | float | str):
            return {"kind": "plain", "value": value}
        if isinstance(value, list | tuple):
            items = [describe(f"{name}[{n}]", item) for n, item in enumerate(value)]
            return {"kind": "tuple" if isinstance(value, tuple) else "list", "items": items}
        raise WireError(f"an argument of type {type(value).__name__} cannot be sent to a process")

    return {name: describe(name, value) for name, value in arguments.items()}


def describe_result(tensor: Tensor) -> dict[str, Any]:
    """Describe a result in JSON; its elements are sent afterwards."""
    return {"dtype": dtype_name(tensor.dtype), "shape": list(tensor.shape)}


def element_bytes(tensor: Tensor) -> bytes:
    """Return the bytes of a tensor's elements in order."""
    return bits(tensor).numpy().tobytes()


class Reader:
    """A reader of bytes from the kernel's process.

    Args:
        data: the bytes.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        if count < 0 or self._at + count > len(self._data):
            raise WireError("fewer bytes came than were announced")
        data = self._data[self._at : self._at + count]
        self._at += count
        return data

    def result(self, description: Any) -> Tensor:
        """Return a result as a contiguous tensor in memory of this process."""
        match description:
            case {"dtype": str(name), "shape": list(shape)} if name in DTYPES:
                dtype = DTYPES[name]
            case _:
                raise WireError("a result is not described by dtype and shape")
        sizes = [size for size in shape if type(size) is int and 0 <= size < 2**40]
        if len(sizes) != len(shape) or len(shape) > _MOST_DIMENSIONS:
            raise WireError(f"a result has an impossible shape: {str(shape)[:80]}")
        data = self.take(math.prod(sizes) * dtype.itemsize)
        if not data and math.prod(size for size in sizes if size) >= 2**60:
            raise WireError(f"a result has an impossible shape: {str(shape)[:80]}")
        memory = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0)
        return memory.view(dtype).reshape(sizes) if data else torch.empty(sizes, dtype=dtype)

    def end(self) -> None:
        """Require that all bytes were read."""
        if self._at != len(self._data):
            raise WireError("more bytes came than were announced")
