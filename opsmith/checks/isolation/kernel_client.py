"""The end that has kernels called elsewhere."""

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
from opsmith.checks.isolation.launch import Launch
from opsmith.checks.isolation.memory import bound_for
from opsmith.checks.isolation.supervisor_client import End, GarbledError, Supervised
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

#: Importing and compiling may take so many times as long as a call.
_LOADING = 10
_BYTES_OF_AN_ELEMENT = 8
_CODE = re.compile(r"OPS(-[A-Z]+)+")
_EVENTS = ("loaded", "results", "gradients", "failed")


class Caller(Supervised):
    """A process that kernels are called in; another follows where it ended.

    Args:
        launch: starts its supervisor.
        time_limit: the seconds that a call may take.
        setup: a request that comes before the first call of each process.
        again: whether another supervisor may be started where one is lost.
        alive: told before and after each call.

    Attributes:
        hung: whether a call took too long.
        keep: how many results are looked at again after later calls.
        raises: the code of an exception.
    """

    #: What messages call the process.
    who = "the kernel's process"
    #: The code of an answer that cannot be read.
    garbled = "OPS-CHECK-LOST"
    #: Whether every argument is looked at after a call.
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
        """Start the supervisor now, and not with the first call."""
        self._start()

    def stop(self) -> None:
        """End the process; the next call starts another."""
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
    ) -> list[Tensor]:
        """Call an operator.

        Args:
            operator: as it is known here.
            arguments: by name, on the CPU; what it writes into has been written afterwards.
            device: the device type to call it on.
            threads: with how many.

        Returns:
            The results, then what the operator writes into.

        Raises:
            Failure: it raised, crashed or hung, or a result that it gave earlier is another now.
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
        """Results, then what the operator writes into, once they are what they may be.

        Args:
            operator: what was called.
            arguments: by name; what it writes into has been written afterwards.
            values: what came back.
            sent: the bytes of each memory, by the name of the first tensor in it.
            after: those after the call.

        Raises:
            Failure: it wrote into another argument, or gave something else than is declared.
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
            Failure: it raised, crashed or hung; a floating result does not require a gradient; or
                the backward wrote into what it was given.
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
                raise WireError(f"not {len(leaves)} gradients came")
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
        """Raise `Failure` where results are not what the declaration says."""

    def _values(self, operator: Operator, message: dict[str, Any], reader: Reader) -> list[Any]:
        groups = message.get("results")
        results = len(operator.signature.results)
        if not isinstance(groups, list) or len(groups) != results:
            raise WireError(f"not {results} results came")
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
        """Have the process set up, where it is not; what it answered.

        Raises:
            Failure: it cannot be.
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
        """Send a request for a call; the answer, and the bytes that came with it.

        Raises:
            Failure: there is no answer, or not `event`.
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
            if message and message["event"] == "ended" and message.get("pid") == self._child:
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
            # It ended between a message and the bytes that belong to it.
            raise self._gone(self._lost()) from None
        except (GarbledError, KeyError, TypeError, ValueError) as error:
            self._garbled(str(error))

    def _hung(self, limit: float) -> Failure:
        """What to raise where a call did not return in time."""
        self.hung = True
        return _final(End(f"did not return within {limit:.0f} s", "OPS-CALL-HANG"))

    def _restart(self) -> None:
        """End the child, whether or not it has ended by itself; another takes its place."""
        self._end_child()
        self._loaded = None

    def _garbled(self, reason: str) -> NoReturn:
        """Raise `Failure` since what came cannot be read, nor can what comes after it."""
        how = f"{self.who} gave an answer that cannot be read ({reason}){self._tail()}"
        self.stop()
        raise self._gone(End(how, self.garbled))

    def _gone(self, end: End) -> Failure:
        """What to raise where the supervisor is lost."""
        if self._again:
            return Failure(end.how, code=end.code)
        self._lost_for_good = end
        return _final(end)

    def _failed(self, message: dict[str, Any]) -> Failure:
        """What to raise where the process says that a call failed."""
        code = message.get("code")
        known = isinstance(code, str) and _CODE.fullmatch(code)
        return Failure(str(message.get("message")), code=str(code) if known else self.raises)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except WireError as error:
            self._garbled(str(error))

    def _require_answer(self, message: dict[str, Any]) -> None:
        """Raise where a message does not answer the request, or announces more than fits."""
        if message["event"] not in _EVENTS:
            raise GarbledError(f"there is no event {str(message['event'])[:40]!r}")
        if message.get("request") != self._number:
            raise GarbledError("it is an answer to something else")
        count = message.get("bytes")
        if type(count) is not int or not 0 <= count <= 2**33:
            raise GarbledError("it does not say how many bytes follow")


def _crashed(how: str, code: str) -> Failure:
    """A failure that ended the process."""
    failure = Failure(how, code=code)
    failure.crashed = True
    return failure


def _final(end: End) -> Failure:
    """A failure that no smaller case is looked for."""
    failure = Failure(end.how, code=end.code)
    failure.final = True
    return failure


def _flat(values: list[Any]) -> Iterator[Tensor]:
    for value in values:
        yield from value if isinstance(value, list) else [value]


def _overwrite(tensor: Tensor, data: bytes) -> None:
    """Put bytes into a tensor's memory."""
    memory = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
    if data:
        memory.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
