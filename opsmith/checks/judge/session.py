"""The judge's end of the candidate's process."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from opsmith.checks.judge.wire import (
    Reader,
    WireError,
    describe_argument,
    element_bytes,
    storage_bytes,
    tensors_in,
)
from opsmith.checks.protocol import Failure
from opsmith.checks.truth import run_reference
from opsmith.checks.worker.memory import bound_for
from opsmith.checks.worker.supervised import GarbledError, Supervised
from opsmith.errors import ArgumentError
from opsmith.operators import Operator
from opsmith.operators.arguments import DTYPES, dtype_name, flatten, output_names
from opsmith.operators.validation import Validator, checked_results

#: What a candidate's process knows of the environment: what compilers and libraries need.
_ENVIRONMENT = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "CC",
    "CXX",
    "CXXFLAGS",
    "LDFLAGS",
    "CUDA_HOME",
    "OMP_NUM_THREADS",
)
#: Importing and compiling may take so many times as long as a call.
_LOADING = 10
#: After it hung once, a call gets this part of the time, and not less than a second.
_LESS = 0.1
_BYTES_OF_AN_ELEMENT = 16


class Session(Supervised):
    """A candidate's process, started again where it ended.

    Args:
        spec: the file with the declarations.
        candidate: the file with the kernels.
        time_limit: the seconds that a call may take.
    """

    def __init__(self, spec: Path, candidate: Path, time_limit: float) -> None:
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        super().__init__("opsmith.checks.judge.candidate", environment)
        # A cache of its own: what it leaves there, nobody else loads.
        environment["OPSMITH_CACHE"] = str(self._folder / "cache")
        self._files = {"spec": str(spec), "candidate": str(candidate)}
        self._time_limit = time_limit
        self._number = 0
        self._loaded: dict[str, tuple[str, ...] | None] | None = None
        self._before: dict[str, list[bytes]] = {}

    def load(self) -> dict[str, tuple[str, ...] | None]:
        """Have the candidate imported.

        Returns:
            For each operator that it registers a kernel for the dtypes of that; `None` for all.

        Raises:
            Failure: it cannot be imported.
        """
        if self._loaded is not None:
            return self._loaded
        self._before = {}
        message, _ = self._ask({"event": "load", **self._files}, b"", _LOADING, 0)
        if message["event"] == "raised":
            self.stop()
            raise Failure(
                f"importing the candidate raised {message.get('message')}",
                code="OPS-JUDGE-IMPORT",
            )
        found: dict[str, tuple[str, ...] | None] = {}
        operators = message.get("operators")
        for name, dtypes in operators.items() if isinstance(operators, dict) else ():
            if isinstance(dtypes, list):
                found[name] = tuple(dtype for dtype in DTYPES if dtype in dtypes)
            else:
                found[name] = None
        self._loaded = found
        return found

    def stop(self) -> None:
        """End the process; the next call starts another."""
        super().stop()
        self._loaded = None

    def _restart(self) -> None:
        """End the child, whether or not it has ended by itself; another takes its place."""
        self._end_child()
        self._loaded = None

    def run(self, operator: Operator, arguments: Mapping[str, Any]) -> list[Tensor]:
        """Call the candidate's kernel.

        Args:
            operator: as the judge knows it.
            arguments: by name.

        Returns:
            The results, then what the operator writes into.

        Raises:
            Failure: it raised, crashed or hung; it gave something else than declared; it wrote
                into an argument; or a result that it gave earlier is another now.
        """
        self.load()
        sent = [(name, storage_bytes(tensor)) for name, tensor in tensors_in(arguments)]
        described = {name: describe_argument(value) for name, value in arguments.items()}
        request = {"event": "call", "operator": operator.name, "arguments": described}
        elements = sum(len(data) for _, data in sent) // 8
        message, data = self._ask(request, b"".join(data for _, data in sent), 1, elements)
        if message["event"] == "raised":
            raise Failure(f"raised {message.get('message')}", code="OPS-CALL-RAISED")
        try:
            return self._results(operator, arguments, sent, message, Reader(data))
        except WireError as error:
            self.stop()
            raise Failure(
                f"the candidate's answer is none: {error}", code="OPS-JUDGE-ANSWER"
            ) from error

    def _results(
        self,
        operator: Operator,
        arguments: Mapping[str, Any],
        sent: list[tuple[str, bytes]],
        message: dict[str, Any],
        reader: Reader,
    ) -> list[Tensor]:
        signature = operator.signature
        groups = message.get("results")
        if not isinstance(groups, list) or len(groups) != len(signature.results):
            raise WireError(f"not {len(signature.results)} results came")
        values = [
            [reader.result(item) for item in group]
            if isinstance(group, list)
            else reader.result(group)
            for group in groups
        ]
        after = {name: reader.take(len(data)) for name, data in sent}
        again = message.get("again")
        if not isinstance(again, list):
            raise WireError("earlier results are missing")
        earlier = [element_bytes(reader.result(item)) for item in again]
        reader.end()

        self._compare_earlier(operator, earlier)
        written = {parameter.name for parameter in signature.mutated}
        for name, data in sent:
            if name.partition("[")[0] not in written and after[name] != data:
                raise Failure(
                    f"wrote into argument {name!r}, which mutates_args does not name",
                    code="OPS-MUTATION-UNDECLARED",
                )
        returned: Any = tuple(values) if len(values) != 1 else values[0]
        returned = returned if values else None
        self._require_declared(operator, arguments, returned)
        for name, tensor in tensors_in(arguments):
            if name in written:
                _overwrite(tensor, after[name])
        flat = flatten(signature, returned, arguments)
        fresh = [
            value for value in values for value in (value if isinstance(value, list) else [value])
        ]
        self._before[operator.name] = [element_bytes(tensor) for tensor in fresh]
        return flat

    def _compare_earlier(self, operator: Operator, earlier: list[bytes]) -> None:
        known = self._before.pop(operator.name, None)
        if known is not None and known != earlier:
            raise Failure(
                "the result of the call before is another after this call: it lies in memory "
                "that the kernel uses again, or that is an argument's",
                code="OPS-RESULT-REUSED",
            )

    def _require_declared(
        self, operator: Operator, arguments: Mapping[str, Any], returned: Any
    ) -> None:
        """Compare shapes and dtypes with the declaration and the reference."""
        signature = operator.signature
        try:
            valid = Validator(signature)(dict(arguments))
            checked_results(signature, arguments, valid, returned, "the candidate's kernel")
        except ArgumentError as error:
            raise Failure(str(error), code="OPS-RESULT-DECLARED") from error
        try:
            right, expected = run_reference(operator, arguments)
        except Exception:
            return  # not in this dtype; what the declaration says was compared
        names = output_names(signature, right)
        for name, tensor, other in zip(
            names, flatten(signature, returned, arguments), expected, strict=False
        ):
            if tensor.dtype != other.dtype:
                raise Failure(
                    f"{name} is {dtype_name(tensor.dtype)}, expected {dtype_name(other.dtype)}",
                    code="OPS-RESULT-DECLARED",
                )

    def _ask(
        self, request: dict[str, Any], payload: bytes, times: float, elements: int
    ) -> tuple[dict[str, Any], bytes]:
        """Send a request; the answer, and the bytes that came with it.

        Raises:
            Failure: there is no answer.
        """
        if request["event"] == "call" and self._loaded is None:
            self.load()
        limit = self._time_limit * times
        try:
            end = self._make_ready()
            if end is not None:
                raise Failure(end.how, code=end.code)
            assert self._child is not None
            self._number += 1
            head = {"number": self._number, "bytes": len(payload), **request}
            bound = bound_for(self._child, elements)
            taken = self._send((json.dumps(head) + "\n").encode() + payload, limit)
            message = self._read(limit, bound) if taken else {}
            if message is None:
                end = self._lost()
                raise Failure(end.how, code=end.code)
            if message and message["event"] == "ended" and message.get("pid") == self._child:
                end = self._how(int(message["code"]))
                self._restart()
                raise Failure(end.how, code=end.code)
            if message:
                self._require_answer(message, len(payload))
                data = self._read_bytes(message["bytes"], limit, bound)
                if data is not None:
                    return message, data
            exceeded = bound is not None and self._exceeded
            self._restart()
            if exceeded and bound is not None:
                raise Failure(bound.excess, code="OPS-CALL-MEMORY")
            self._time_limit = min(self._time_limit, max(1.0, _LESS * self._time_limit))
            raise Failure(f"did not return within {limit:.0f} s", code="OPS-CALL-HANG")
        except (GarbledError, KeyError, TypeError, ValueError) as error:
            tail = self._tail()
            self.stop()
            raise Failure(
                f"the candidate's answer is none ({error}){tail}", code="OPS-JUDGE-ANSWER"
            ) from error

    def _require_answer(self, message: dict[str, Any], sent: int) -> None:
        """Raise where a message is no answer to the request, or announces more than fits."""
        if message["event"] not in ("loaded", "results", "raised"):
            raise GarbledError(f"there is no event {str(message['event'])[:40]!r}")
        if message.get("request") != self._number:
            raise GarbledError("it is an answer to something else")
        count = message.get("bytes")
        if type(count) is not int or not 0 <= count <= 2**33:
            raise GarbledError("it does not say how many bytes follow")


def _overwrite(tensor: Tensor, data: bytes) -> None:
    """Put bytes into a tensor's memory."""
    import torch

    memory = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
    if data:
        memory.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
