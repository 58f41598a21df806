"""Call operators with the arguments that standard input holds, and send the results.

The judge copies this file to a folder and runs it there, like any user's program. A candidate that
looks for a checker finds none: not among the imported modules, not on the command line, and not in
the call stack. Therefore this file imports only those parts of the package that a declaration has
already imported.

Standard input has a line of JSON: the modules to import, the descriptor for the results, and a list
of calls, in the format of `opsmith.checks.isolation.wire`. The bytes of their memory follow, one
call after the other. A line of JSON that describes the results of each call is sent at the end,
followed by the bytes of each call: its results, then the memory.
"""

from __future__ import annotations

import io
import json
import os
import sys
from typing import IO, Any

import torch

from opsmith.kernels import HOST
from opsmith.operators.core.arguments import read_arguments
from opsmith.sources.importing import import_module


def main() -> None:
    """Make the calls."""
    asked = json.loads(sys.stdin.buffer.readline())
    data = io.BytesIO(sys.stdin.buffer.read(asked["bytes"]))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    calls = []
    for call in asked["calls"]:
        memory: dict[str, torch.Tensor] = {}
        arguments = read_arguments(call["arguments"], data.read, HOST, memory)
        calls.append((call["operator"], arguments, memory))
    del data, arguments, memory
    for module in asked["modules"]:
        import_module(module)
    answers, results = [], io.BytesIO()
    while calls:
        qualname, arguments, memory = calls.pop(0)
        namespace, name = qualname.split("::")
        operator = getattr(getattr(torch.ops, namespace), name.partition(".")[0])
        answers.append(_written(operator(**arguments), memory, results))
    head = {"event": "results", "request": asked["number"], "answers": answers}
    with open(asked["results"], "wb") as sent:
        sent.write(json.dumps({**head, "bytes": results.tell()}).encode() + b"\n")
        sent.write(results.getbuffer())


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
