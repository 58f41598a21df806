"""The server that calls kernels: it receives arguments and returns results.

This process holds no seed, expected result or verdict, so a malicious kernel can corrupt only this
process.
"""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from opsmith.checks.cases.failure import Failure, code_of, raised
from opsmith.checks.isolation.call_ways import call_in, caller_of
from opsmith.checks.isolation.fork_detection import FORK_CODE, FORKED, Forks
from opsmith.checks.isolation.wire import (
    Reader,
    describe_result,
    element_bytes,
    memories_in,
    storage_bytes,
)
from opsmith.checks.numerics.gradients import COTANGENTS, differentiate
from opsmith.checks.numerics.torch_threads import threads
from opsmith.operators import Operator
from opsmith.operators.core.arguments import read_arguments
from opsmith.system.processes.server import Reply, answer_all, take_requests
from opsmith.system.processes.supervisor import supervise


class OperatorSource(Protocol):
    """A source of operators."""

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Import the operators, and return the fields of the answer."""

    def operator(self, name: str) -> Operator:
        """Return the operator of a name."""


class Single:
    """A source of a single operator: a given one, or the one that a request locates."""

    def __init__(self, operator: Operator | None = None) -> None:
        self._operator = operator

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Import the operator from the location in the request."""
        from opsmith.checks.isolation.import_location import Location, obtain

        sys.path[:], sys.argv[:] = request["path"], request["argv"]
        self._operator = obtain(Location.from_json(request["location"]))
        return {}

    def operator(self, name: str) -> Operator:
        """Return the single operator; the name is ignored."""
        assert self._operator is not None
        return self._operator


def main() -> None:
    """Serve calls of an operator that a request locates."""
    run(Single())


def run(source: OperatorSource) -> None:
    """Serve calls in a new Python that was started with a file descriptor and a folder."""
    supervise(
        int(sys.argv[1]), Path(sys.argv[2]), lambda: None, lambda answers: serve(answers, source)
    )


def serve(answers: int, source: OperatorSource) -> None:
    """Answer requests until the input ends."""
    calls = _KernelCalls(source)
    answer_all(take_requests(), answers, calls.reply)


class _KernelCalls:
    """Calls of kernels, and memory that is kept from one call to the next.

    Arguments of the same size as those of the call before are written into the same memory, so that
    a kernel that caches results by address is found. Results are read again after later calls, so
    that a kernel that reuses the memory of its results is found.
    """

    def __init__(self, source: OperatorSource) -> None:
        self._source = source
        self._memory: dict[str, Tensor] = {}
        self._returned: dict[str, deque[list[Tensor]]] = {}

    def reply(self, request: dict[str, Any], payload: bytes) -> Reply:
        """Import operators or call one, and return the answer; a failure is an answer too."""
        forks = Forks()
        data = b""
        try:
            if request["event"] == "load":
                reply = {"event": "loaded", **self._source.load(request)}
            else:
                reply, data = self.call(request, payload)
        except Failure as failure:
            reply = {"event": "failed", "message": str(failure), "code": failure.code}
        except BaseException as error:
            reply = {"event": "failed", "message": raised(error), "code": code_of(error, "")}
        if forks.happened():
            return {"event": "failed", "message": FORKED, "code": FORK_CODE}, b""
        return reply, data

    def call(self, request: dict[str, Any], payload: bytes) -> Reply:
        """Call an operator, or differentiate it."""
        operator = self._source.operator(request["operator"])
        described, device = request["arguments"], request["device"]
        arguments = read_arguments(described, Reader(payload).take, device, self._memory)
        if COTANGENTS in arguments:
            return _differentiated(operator, request, arguments)
        call = caller_of(operator, request["kernel"])
        with threads(request["threads"]):
            for _ in range(request["repeats"]):
                others = read_arguments(described, Reader(payload).take, device)
                positional, keywords = operator.split(others)
                call(*positional, **keywords)
            positional, keywords = operator.split(arguments)
            returned = call_in(request["way"], lambda: call(*positional, **keywords))
        results = len(operator.signature.results)
        groups, chunks, flat = [], [], []
        for value in list(returned) if results > 1 else [returned] * results:
            items = list(value) if isinstance(value, list | tuple) else [value]
            described = [describe_result(item) for item in items]
            groups.append(described if isinstance(value, list | tuple) else described[0])
            chunks += [element_bytes(item) for item in items]
            flat += items
        after = memories_in(arguments)
        chunks += [storage_bytes(after[name]) for name in request["after"]]
        earlier = deque(self._returned.get(operator.name, ()), request["keep"])
        self._returned[operator.name] = earlier
        again = [[describe_result(tensor) for tensor in tensors] for tensors in earlier]
        chunks += [element_bytes(tensor) for tensors in earlier for tensor in tensors]
        earlier.append(flat)
        return {"event": "results", "results": groups, "again": again}, b"".join(chunks)


def _differentiated(
    operator: Operator, request: dict[str, Any], arguments: dict[str, Any]
) -> Reply:
    cotangents = arguments.pop(COTANGENTS)

    def call(own: Any) -> Any:
        positional, keywords = operator.split(own)
        with threads(request["threads"]):
            return operator(*positional, **keywords)

    backward = differentiate(
        call,
        operator.signature,
        arguments,
        cotangents,
        alone=request["alone"],
        count=request["threads"],
    )
    every = (*backward.results, *backward.found)
    reply = {
        "event": "gradients",
        "results": [describe_result(one) for one in backward.results],
        "gradients": [None if one is None else describe_result(one) for one in backward.found],
    }
    chunks = [element_bytes(one) for one in every if one is not None]
    after = memories_in({**arguments, COTANGENTS: cotangents})
    return reply, b"".join([*chunks, *(storage_bytes(after[name]) for name in request["after"])])


if __name__ == "__main__":
    main()
