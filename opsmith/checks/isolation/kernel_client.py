"""The client of a process that calls kernels."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

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
from opsmith.system.processes.supervisor_client import End, GarbledError, Supervised, printable

#: The time limit for importing and compiling, as a multiple of a call's.
_LOADING = 10
_BYTES_OF_AN_ELEMENT = 8
_CODE = re.compile(r"OPS(-[A-Z]+)+")
#: Largest number of bytes that follow a message, and of characters of a failure's description.
_ANSWER_BYTES, _MESSAGE = 1 << 30, 8000
_EVENTS = ("loaded", "results", "gradients", "failed")


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

    #: Name of the process in messages.
    who = "the kernel's process"
    #: Failure code for an answer that cannot be read.
    garbled = "OPS-CHECK-LOST"
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
        self._number = 0
        self._loaded: dict[str, Any] | None = None
        self._lost_for_good: End | None = None
        self._before: dict[str, deque[list[bytes]]] = {}

    def start(self) -> None:
        """Start the supervisor now instead of with the first call."""
        self._start()

    def stop(self) -> None:
        """End the process; the next call starts a new one."""
        super().stop()
        self._loaded = None

    # --- calls -------------------------------------------------------------------------------

    def run(
        self,
        operator: Operator,
        arguments: Mapping[str, Any],
        *,
        device: str = HOST,
        threads: int = 1,
        way: str = PLAIN,
        repeats: int = 0,
    ) -> list[Tensor]:
        """Call an operator.

        Args:
            operator: the operator, as declared in this process.
            arguments: the arguments by name, on the CPU; mutated ones are updated.
            device: the device type of the call.
            threads: number of threads.
            way: the way to call it, see `opsmith.checks.isolation.call_ways`.
            repeats: number of equal calls to make before, with memory of their own.

        Returns:
            The results, then the mutated arguments.

        Raises:
            Failure: the call raised, crashed or hung, or an earlier result changed.
        """
        memories = memories_in(arguments)
        sent = {name: storage_bytes(tensor) for name, tensor in memories.items()}
        written = written_memories(operator.signature, arguments)
        looked_at = list(sent) if self.watches_arguments else written
        request = {
            "event": "call",
            "operator": operator.name,
            "arguments": describe_arguments(arguments),
            "device": device,
            "threads": threads,
            "after": looked_at,
            "keep": self.keep,
            "way": way,
            "repeats": repeats,
        }
        message, reader = self._ask(request, list(sent.values()), "results")
        with self._reading():
            values = self._values(operator, message, reader)
            after = {name: reader.take(len(sent[name])) for name in looked_at}
            earlier = self._earlier(message, reader)
            reader.end()
        before = self._before.setdefault(operator.name, deque(maxlen=self.keep))
        known = list(before)
        before.append([element_bytes(tensor) for tensor in _flat(values)])
        if known != earlier:
            raise Failure(CHANGED, code="OPS-RESULT-REUSED")
        return self._accepted(operator, arguments, values, sent, after)

    def _accepted(
        self,
        operator: Operator,
        arguments: Mapping[str, Any],
        values: list[Any],
        sent: Mapping[str, bytes],
        after: Mapping[str, bytes],
    ) -> list[Tensor]:
        """Validate what a call returned and wrote; return the results, then the mutated arguments.

        Args:
            operator: the called operator.
            arguments: the arguments by name; mutated ones are updated.
            values: the returned results.
            sent: the bytes of each storage before the call, by the name of its first tensor.
            after: the bytes after the call.

        Raises:
            Failure: the call wrote into another argument, or the results differ from the
                declaration.
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
        self._require_declared(operator, arguments, returned)
        for name in written:
            _overwrite(memories[name], after[name])
        return flatten(operator.signature, returned, arguments)

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
        """Call an operator and differentiate its results, see `gradients.differentiate`.

        Raises:
            Failure: the call raised, crashed or hung; no floating-point result requires a
                gradient; or the backward wrote into its inputs.
        """
        _, leaves = leaves_of(arguments, operator.signature, alone)
        given = {**arguments, COTANGENTS: list(cotangents)}
        described = describe_arguments(given)
        sent = {name: storage_bytes(tensor) for name, tensor in memories_in(given).items()}
        request = {
            "event": "call",
            "operator": operator.name,
            "cotangents": described.pop(COTANGENTS),
            "arguments": described,
            "alone": alone,
            "device": device,
            "threads": threads,
            "after": list(sent),
        }
        message, reader = self._ask(request, list(sent.values()), "gradients")
        with self._reading():
            gradients = message.get("gradients")
            if not isinstance(gradients, list) or len(gradients) != len(leaves):
                raise WireError(f"the answer does not have {len(leaves)} gradients")
            results = message.get("results")
            if not isinstance(results, list):
                raise WireError("no results came")
            values = [reader.result(one) for one in results]
            found = [None if one is None else reader.result(one) for one in gradients]
            changed = [name for name, data in sent.items() if reader.take(len(data)) != data]
            reader.end()
        require_unwritten(changed)
        return Backward(values, leaves, found)

    def _require_declared(
        self, operator: Operator, arguments: Mapping[str, Any], returned: Any
    ) -> None:
        """Raise `Failure` if results differ from the declaration; subclasses may override this."""

    def _values(self, operator: Operator, message: dict[str, Any], reader: Reader) -> list[Any]:
        groups = message.get("results")
        results = len(operator.signature.results)
        if not isinstance(groups, list) or len(groups) != results:
            raise WireError(f"the answer does not have {results} results")
        return [
            [reader.result(item) for item in group]
            if isinstance(group, list)
            else reader.result(group)
            for group in groups
        ]

    def _earlier(self, message: dict[str, Any], reader: Reader) -> list[list[bytes]]:
        again = message.get("again")
        if not isinstance(again, list) or not all(isinstance(group, list) for group in again):
            raise WireError("earlier results are missing")
        return [[element_bytes(reader.result(item)) for item in group] for group in again]

    # --- requests ----------------------------------------------------------------------------

    def load(self) -> dict[str, Any]:
        """Set up the process if necessary, and return its answer to the setup request.

        Raises:
            Failure: the setup failed.
        """
        if self._loaded is None:
            self._before = {}
            self._loaded = {}
            if self._setup is not None:
                request = {"event": "load", **self._setup}
                try:
                    self._loaded, _ = self._exchange(request, [], _LOADING * self._time_limit)
                except Failure:
                    self._loaded = None
                    raise
        return self._loaded

    def _ask(
        self, request: dict[str, Any], payload: list[bytes], event: str
    ) -> tuple[dict[str, Any], Reader]:
        """Send a request for a call, and return the answer and the bytes that follow it.

        Raises:
            Failure: no answer came, or an answer other than `event`.
        """
        self.load()
        self._alive()
        message, data = self._exchange(request, payload, self._time_limit)
        self._alive()
        if message["event"] != event:
            self._garbled(f"{message['event']!r} came where {event} are expected")
        return message, Reader(data)

    def _exchange(
        self, request: dict[str, Any], payload: list[bytes], limit: float
    ) -> tuple[dict[str, Any], bytes]:
        if self._lost_for_good is not None:
            raise _final(self._lost_for_good)
        try:
            end = self._make_ready()
            if end is not None:
                raise self._gone(end)
            assert self._child is not None
            self._number += 1
            size = sum(map(len, payload))
            head = {"number": self._number, "bytes": size, **request}
            bound = bound_for(self._child, size // _BYTES_OF_AN_ELEMENT)
            data = b"".join([(json.dumps(head) + "\n").encode(), *payload])
            message = self._read(limit, bound) if self._send(data, limit) else {}
            if message is None:
                raise self._gone(self._lost())
            if message and message["event"] == "ended" and message.get("pid") == self._inside:
                end = self._how(int(message["code"]))
                self._restart()
                raise _crashed(end.how, end.code)
            if message:
                self._require_answer(message)
                if message["event"] == "failed":
                    raise self._failed(message)
                data_back = self._read_bytes(message["bytes"], limit, bound)
                if data_back is not None:
                    return message, data_back
            exceeded = bound is not None and self._exceeded
            self._restart()
            if exceeded and bound is not None:
                raise _crashed(bound.excess, "OPS-CALL-MEMORY")
            raise self._hung(limit)
        except EOFError:
            # The process ended between a message and the bytes that belong to it.
            raise self._gone(self._lost()) from None
        except (GarbledError, KeyError, TypeError, ValueError, ArithmeticError) as error:
            self._garbled(str(error))

    def _hung(self, limit: float) -> Failure:
        """Return the failure for a call that exceeded the time limit."""
        self.hung = True
        return _final(End(f"did not return within {limit:.0f} s", "OPS-CALL-HANG"))

    def _restart(self) -> None:
        """End the child, if it has not ended by itself; the supervisor starts another one."""
        self._end_child()
        self._loaded = None

    def _garbled(self, reason: str) -> NoReturn:
        """Raise `Failure` since an answer cannot be read, and end the process."""
        reason = printable(reason, _MESSAGE)
        how = f"{self.who} gave an answer that cannot be read ({reason}){self._tail()}"
        self.stop()
        raise self._gone(End(how, self.garbled))

    def _gone(self, end: End) -> Failure:
        """Return the failure for a lost supervisor."""
        if self._again:
            return Failure(end.how, code=end.code)
        self._lost_for_good = end
        return _final(end)

    def _failed(self, message: dict[str, Any]) -> Failure:
        """Return the failure for a call that the process reports as failed."""
        code = message.get("code")
        known = isinstance(code, str) and _CODE.fullmatch(code)
        said = printable(str(message.get("message")), _MESSAGE)
        return Failure(said, code=str(code) if known else self.raises)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except WireError as error:
            self._garbled(str(error))

    def _require_answer(self, message: dict[str, Any]) -> None:
        """Raise if a message does not answer the request, or announces too many bytes."""
        if message["event"] not in _EVENTS:
            raise GarbledError(f"there is no event {str(message['event'])[:40]!r}")
        if message.get("request") != self._number:
            raise GarbledError("it is an answer to something else")
        count = message.get("bytes")
        if type(count) is not int or not 0 <= count <= _ANSWER_BYTES:
            raise GarbledError("it does not say how many bytes follow")


def _crashed(how: str, code: str) -> Failure:
    """Return a failure that ended the process."""
    failure = Failure(how, code=code)
    failure.crashed = True
    return failure


def _final(end: End) -> Failure:
    """Return a failure for which no smaller case is searched."""
    failure = Failure(end.how, code=end.code)
    failure.final = True
    return failure


def _flat(values: list[Any]) -> Iterator[Tensor]:
    for value in values:
        yield from value if isinstance(value, list) else [value]


def _overwrite(tensor: Tensor, data: bytes) -> None:
    """Write bytes into a tensor's storage."""
    memory = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
    if data:
        memory.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
