"""The candidate's process: imports kernels, takes arguments, returns results.

Started by the judge as ``python -m opsmith.checks.judge.candidate FD FOLDER``. Whatever the kernels
do to this process, they do to this process: it knows no seed, no expected result and no verdict.
"""

from __future__ import annotations

import json
import os
from typing import Any

from opsmith.checks.worker.process import answer, supervise


def main() -> None:
    """Serve calls."""
    supervise(_prepare, _serve)


def _prepare() -> None:
    from opsmith.checks.judge import wire
    from opsmith.operators import importing

    del wire, importing


def _serve(answers: int) -> None:
    requests = os.fdopen(os.dup(0), "rb", buffering=1 << 20)
    # Nothing else reads what the judge sends, or writes where it listens, by mistake.
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    state = _Calls()
    for line in requests:
        request = json.loads(line)
        payload = requests.read(request.get("bytes", 0))
        try:
            if request["event"] == "load":
                reply, data = _load(request)
            else:
                reply, data = state.call(request, payload)
        except BaseException as error:
            reply, data = {"event": "raised", "message": _shown(error)}, b""
        answer(answers, request=request["number"], bytes=len(data), **reply)
        left = memoryview(data)
        while left:
            left = left[os.write(answers, left) :]


def _shown(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip()}"[:2000]


def _load(request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Import the declaration, then the kernels; what they are registered for."""
    from opsmith.operators.importing import import_module, import_operators

    operators = import_operators(request["spec"]).operators
    before = {operator.name: operator.kernels.get("cpu") for operator in operators}
    import_module(request["candidate"])
    found: dict[str, list[str] | None] = {}
    for operator in operators:
        kernel = operator.kernels.get("cpu")
        if kernel is None or kernel is before[operator.name]:
            continue
        operator.build("cpu")
        found[operator.name] = sorted(kernel.dtypes) or None
    return {"event": "loaded", "operators": found}, b""


class _Calls:
    """Calls, with what is kept from one to the next.

    Arguments that lie in memory as those of the call before do are written into the same memory, so
    that whoever remembers an address remembers too little. Results are looked at again after the
    next call, so that whoever gives out memory that is used again is seen.
    """

    def __init__(self) -> None:
        self._memory: dict[str, tuple[dict[str, Any], Any]] = {}
        self._returned: dict[str, list[Any]] = {}

    def call(self, request: dict[str, Any], payload: bytes) -> tuple[dict[str, Any], bytes]:
        """Call an operator; every result, every argument as it is then, and earlier results."""
        from opsmith.checks.judge.wire import (
            describe_result,
            element_bytes,
            storage_bytes,
            tensors_in,
        )
        from opsmith.operators import registry

        operator = registry.get(request["operator"])
        reading = [payload]
        arguments = {
            name: self._argument(name, description, reading)
            for name, description in request["arguments"].items()
        }
        positional, keywords = operator.split(arguments)
        returned = operator(*positional, **keywords)
        results = len(operator.signature.results)
        many = list(returned) if results > 1 else [returned] * results
        groups, chunks = [], []
        flat = []
        for value in many:
            items = list(value) if isinstance(value, list | tuple) else [value]
            described = [describe_result(item) for item in items]
            groups.append(described if isinstance(value, list | tuple) else described[0])
            chunks += [element_bytes(item) for item in items]
            flat += items
        chunks += [storage_bytes(tensor) for _, tensor in tensors_in(arguments)]
        earlier = self._returned.get(operator.name, [])
        again = [describe_result(tensor) for tensor in earlier]
        chunks += [element_bytes(tensor) for tensor in earlier]
        self._returned[operator.name] = flat
        return {"event": "results", "results": groups, "again": again}, b"".join(chunks)

    def _argument(self, name: str, description: dict[str, Any], reading: list[bytes]) -> Any:
        match description["kind"]:
            case "plain":
                return description["value"]
            case "complex":
                return complex(*description["parts"])
            case "tensor":
                return self._tensor(name, description, reading)
        items = [
            self._argument(f"{name}[{position}]", item, reading)
            for position, item in enumerate(description["items"])
        ]
        return tuple(items) if description["kind"] == "tuple" else items

    def _tensor(self, name: str, description: dict[str, Any], reading: list[bytes]) -> Any:
        import torch

        from opsmith.operators.arguments import DTYPES

        count = description["bytes"]
        data, reading[0] = reading[0][:count], reading[0][count:]
        known = self._memory.get(name)
        if known is None or known[0] != description:
            known = (description, torch.empty(count, dtype=torch.uint8))
            self._memory[name] = known
        memory = known[1]
        if count:
            memory.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        return torch.empty(0, dtype=DTYPES[description["dtype"]]).set_(
            memory.untyped_storage(),
            description["offset"],
            description["shape"],
            description["strides"],
        )


if __name__ == "__main__":
    main()
