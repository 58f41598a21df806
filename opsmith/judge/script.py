"""Call operators with the arguments that standard input holds, and send the results.

The judge copies this file to a folder and runs it there, like any user's program. A candidate that
looks for a checker finds none: not among the imported modules, not on the command line, and not in
the call stack. Therefore this file imports only those parts of the package that a declaration has
already imported.

Standard input begins with a line of JSON: the modules to import, the descriptor for the results,
and a list of calls, in the format of `opsmith.checks.isolation.wire`. The bytes of their memory
follow, one call after the other. A line of JSON that describes the results of each call is sent at
the end, followed by the bytes of each call: its results, then the memory.
"""

from __future__ import annotations

import io
import json
import os
import sys
from typing import IO, Any

import torch

from opsmith.sources.importing import import_module


def main() -> None:
    """Make the calls."""
    asked = json.loads(sys.stdin.buffer.readline())
    data = io.BytesIO(sys.stdin.buffer.read())
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    for module in asked["modules"]:
        import_module(module)
    answers, results = [], io.BytesIO()
    for call in asked["calls"]:
        namespace, name = call["operator"].split("::")
        operator = getattr(getattr(torch.ops, namespace), name.partition(".")[0])
        memory: dict[str, torch.Tensor] = {}
        arguments = _arguments(call["arguments"], data, memory)
        answers.append(_written(operator(**arguments), memory, results))
    with open(asked["results"], "wb") as sent:
        sent.write(json.dumps(answers).encode() + b"\n" + results.getvalue())


def _arguments(
    described: dict[str, Any], data: IO[bytes], memory: dict[str, torch.Tensor]
) -> dict[str, Any]:
    made: dict[str, torch.Tensor] = {}

    def value(name: str, one: dict[str, Any]) -> Any:
        if one["kind"] == "plain":
            return one["value"]
        if one["kind"] == "complex":
            return complex(*one["parts"])
        if one["kind"] == "same":
            return made[one["name"]]
        if one["kind"] == "tensor":
            if one["memory"] == name:
                bytes_ = bytearray(data.read(one["bytes"]))
                memory[name] = torch.empty(len(bytes_), dtype=torch.uint8)
                if bytes_:
                    memory[name].copy_(torch.frombuffer(bytes_, dtype=torch.uint8))
            tensor = torch.empty(0, dtype=getattr(torch, one["dtype"]))
            storage = memory[one["memory"]].untyped_storage()
            made[name] = tensor.set_(storage, one["offset"], one["shape"], one["strides"])
            return made[name]
        items = [value(f"{name}[{position}]", item) for position, item in enumerate(one["items"])]
        return tuple(items) if one["kind"] == "tuple" else items

    return {name: value(name, one) for name, one in described.items()}


def _written(returned: Any, memory: dict[str, torch.Tensor], results: IO[bytes]) -> list[Any]:
    """Write results and memory, and return the description of the results."""

    def write(tensor: torch.Tensor) -> dict[str, Any]:
        plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
        results.write(_bytes(plain))
        return {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}

    several = returned if isinstance(returned, tuple) else (returned,)
    described = [
        [write(one) for one in value] if isinstance(value, list) else write(value)
        for value in several
        if value is not None
    ]
    for tensor in memory.values():
        results.write(_bytes(tensor))
    return described


def _bytes(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.reshape(-1).view(torch.uint8).numpy()) if tensor.numel() else b""


if __name__ == "__main__":
    main()
