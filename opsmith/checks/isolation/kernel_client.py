"""The client of a process that calls kernels."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.cases.failure import CHANGED, Failure
from opsmith.checks.isolation.call_ways import PLAIN
from opsmith.checks.isolation.wire import (
    Reader,
    WireError,
    describe_arguments,
    element_bytes,
    memories_in,
    storage_bytes,
    written_memories,
)
from opsmith.checks.numerics.gradients import COTANGENTS, Backward, leaves_of, require_unwritten
from opsmith.kernels import HOST
from opsmith.operators import Operator
from opsmith.operators.core.arguments import flatten
from opsmith.system.processes.launch import Launch
from opsmith.system.processes.memory import bound_for
from opsmith.system.processes.supervisor_client import EndError, GarbledError, Supervised, printable

#: The time limit for importing and compiling, as a multiple of a call's.
_LOADING = 10
_BYTES_OF_AN_ELEMENT = 8
_CODE = re.compile(r"OPS(-[A-Z]+)+")
#: Largest number of characters of a failure's description.
_MESSAGE = 8000


class Caller(Supervised):
    """A process that calls kernels, replaced by a new one whenever it ends.

    Args:
        launch: function that starts the supervisor.
        time_limit: time limit of a call in seconds.
        setup: a request that is sent before the first call of each process.
        again: whether a lost supervisor may be replaced by a new one.
        alive: function that is called before and after each call.

    Attributes:
        hung: whether a call exceeded the time limit.
        keep: number of earlier results that are compared again after later calls.
        raises: the failure code for an exception of a call.
    """

    who = "the kernel's process"
    #: Compare all arguments after a call, not only the mutated arguments.
    watches_arguments = False

    def __init__(
        self,
        launch: Launch,
        time_limit: float,
        *,
        setup: Mapping[str, Any] | None = None,
        again: bool = True,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(launch)
        self.hung = False
        self.keep = 0
        self.raises = "OPS-CALL-RAISED"
        self._time_limit = time_limit
        self._setup = setup
        self._again = again
        self._alive = alive
        self._loaded: dict[str, Any] | None = None
        self._lost_for_good: EndError | None = None
        self._before: dict[str, deque[list[bytes]]] = {}

    # --- calls -------------------------------------------------------------------------------

    def run(
        self,
        operator: Operator,
        arguments: Mapping[str, Any],
        *,
        kernel: str = "",
        device: str = HOST,
        threads: int = 1,
        way: str = PLAIN,
        repeats: int = 0,
    ) -> list[Tensor]:
        """Call an operator.

        Args:
            operator: the operator, as declared in this process.
            arguments: the arguments by name, on the CPU; mutated ones are updated.
            kernel: the name of a variant of its kernel, if that is to be called.
            device: the device type of the call.
            way: the way to call it, see `opsmith.checks.isolation.call_ways`.
            repeats: number of equal calls to make before, with memory of their own.

        Returns:
            The results, then the mutated arguments.
        """
        memories = memories_in(arguments)
        sent = {name: storage_bytes(tensor) for name, tensor in memories.items()}
        written = written_memories(operator.signature, arguments)
        looked_at = list(sent) if self.watches_arguments else written
        fields = {"device": device, "threads": threads, "way": way, "repeats": repeats}
        fields |= {"after": looked_at, "keep": self.keep, "kernel": kernel}
        message, reader = self._ask(operator, arguments, sent, fields, "results")
        with self._parsing():
            values = values_of(operator, message.get("results"), reader)
            after = {name: reader.take(len(sent[name])) for name in looked_at}
            earlier = [
                [element_bytes(reader.result(item)) for item in group] for group in message["again"]
            ]
            reader.end()
        before = deque(self._before.get(operator.name, ()), self.keep)
        self._before[operator.name], known = before, list(before)
        several = (value if isinstance(value, list) else [value] for value in values)
        before.append([element_bytes(tensor) for tensors in several for tensor in tensors])
        if known != earlier:
            raise Failure(CHANGED, code="OPS-RESULT-REUSED")
        return accepted(operator, arguments, values, sent, after, self.require)

    def differentiate(
        self,
        operator: Operator,
        arguments: Mapping[str, Any],
        cotangents: Sequence[Tensor],
        *,
        alone: str = "",
        device: str = HOST,
        threads: int = 1,
    ) -> Backward:
        """Call an operator and differentiate its results, see `gradients.differentiate`."""
        _, leaves = leaves_of(arguments, operator.signature, alone)
        given = {**arguments, COTANGENTS: list(cotangents)}
        sent = {name: storage_bytes(tensor) for name, tensor in memories_in(given).items()}
        fields = {"alone": alone, "device": device, "threads": threads, "after": list(sent)}
        message, reader = self._ask(operator, given, sent, fields, "gradients")
        with self._parsing():
            gradients = message["gradients"]
            if len(gradients) != len(leaves):
                raise WireError(f"the answer does not have {len(leaves)} gradients")
            values = [reader.result(one) for one in message["results"]]
            found = [None if one is None else reader.result(one) for one in gradients]
            changed = [name for name, data in sent.items() if reader.take(len(data)) != data]
            reader.end()
        require_unwritten(changed)
        return Backward(values, leaves, found)

    def require(self, operator: Operator, arguments: Mapping[str, Any], returned: Any) -> None:
        """Raise `Failure` if results differ from the declaration; subclasses may override this."""

    # --- requests ----------------------------------------------------------------------------

    def load(self) -> dict[str, Any]:
        """Set up the process if necessary, and return its answer to the setup request."""
        if self._loaded is None:
            self._before = {}
            loaded: dict[str, Any] = {}
            if self._setup is not None:
                request = {"event": "load", **self._setup}
                loaded, _ = self._exchange(request, [], "loaded", _LOADING * self._time_limit)
            self._loaded = loaded
        return self._loaded

    def forget_child(self) -> None:
        """Have the next process set up anew."""
        self._loaded = None

    def _ask(
        self,
        operator: Operator,
        arguments: Mapping[str, Any],
        sent: Mapping[str, bytes],
        fields: Mapping[str, Any],
        event: str,
    ) -> tuple[dict[str, Any], Reader]:
        """Send a request with the bytes of each storage; return the answer and what follows it."""
        described = describe_arguments(arguments)
        head = {"event": "call", "operator": operator.name, "arguments": described, **fields}
        self.load()
        self._alive()
        message, data = self._exchange(head, [*sent.values()], event, self._time_limit)
        self._alive()
        return message, Reader(data)

    def _exchange(
        self, request: dict[str, Any], payload: list[bytes], event: str, limit: float
    ) -> tuple[dict[str, Any], bytes]:
        with self._failing():
            if self._lost_for_good is not None:
                raise self._lost_for_good
            self.make_ready()
            assert self._child is not None
            bound = bound_for(self._child, sum(map(len, payload)) // _BYTES_OF_AN_ELEMENT)
            message, data = self.ask(request, payload, limit, bound)
            with self.reading():
                came = message["event"]
                if came not in (event, "failed"):
                    raise GarbledError(f"{came!r} came where {event} are expected")
        if came == "failed":
            raise self._failed(message)
        return message, data

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Raise `Failure` if the process ends in the block."""
        try:
            yield
        except EndError as end:
            raise self._failure(end) from None

    def _failure(self, end: EndError) -> Failure:
        """Return the failure for a process that ended."""
        self.hung |= end.hung
        failure = failure_of(end)
        if not (end.again or end.hung or self._again):
            self._lost_for_good = end
            failure.final = True
        return failure

    def _failed(self, message: dict[str, Any]) -> Failure:
        """Return the failure for a call that the process reports as failed."""
        code = message.get("code")
        known = isinstance(code, str) and _CODE.fullmatch(code)
        said = printable(str(message.get("message")), _MESSAGE)
        return Failure(said, code=str(code) if known else self.raises)

    @contextmanager
    def _parsing(self) -> Iterator[None]:
        """Raise `Failure` if what came cannot be read in the block."""
        with self._failing(), self.reading():
            yield


def failure_of(end: EndError) -> Failure:
    """Return the failure for a process that ended; no smaller case is searched after a hang."""
    failure = Failure(end.how, code=end.code)
    failure.crashed, failure.final = end.again, end.hung
    return failure


def values_of(operator: Operator, groups: Any, reader: Reader) -> list[Any]:
    """Return the results of a call from their descriptions and bytes."""
    results = len(operator.signature.results)
    if not isinstance(groups, list) or len(groups) != results:
        raise WireError(f"the answer does not have {results} results")
    return [
        [reader.result(item) for item in group] if isinstance(group, list) else reader.result(group)
        for group in groups
    ]


def accepted(
    operator: Operator,
    arguments: Mapping[str, Any],
    values: list[Any],
    sent: Mapping[str, bytes],
    after: Mapping[str, bytes],
    require: Callable[[Operator, Mapping[str, Any], Any], None],
) -> list[Tensor]:
    """Validate what a call returned and wrote; return the results, then the mutated arguments.

    Args:
        arguments: the arguments by name; mutated ones are updated.
        sent: the bytes of each storage before the call, by the name of its first tensor.
        after: the bytes after the call.
        require: function that raises `Failure` if results differ from the declaration.
    """
    memories = memories_in(arguments)
    written = written_memories(operator.signature, arguments)
    returned: Any = tuple(values) if len(values) != 1 else values[0]
    returned = returned if values else None
    for name, data in after.items():
        if name not in written and data != sent[name]:
            raise Failure(
                f"wrote into argument {name!r}, which mutates_args does not name",
                code="OPS-MUTATION-UNDECLARED",
            )
    require(operator, arguments, returned)
    for name in written:
        _overwrite(memories[name], after[name])
    return flatten(operator.signature, returned, arguments)


def _overwrite(tensor: Tensor, data: bytes) -> None:
    """Write bytes into a tensor's storage."""
    memory = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
    if data:
        memory.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
