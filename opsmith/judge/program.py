"""Call a candidate's kernels in a program of its own, in which nothing reveals the judge."""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from opsmith.checks.cases.failure import Failure
from opsmith.checks.isolation.sandbox.policy import Boxed
from opsmith.checks.isolation.supervisor_client import new_output
from opsmith.checks.isolation.wire import Reader, describe_arguments, memories_in, storage_bytes
from opsmith.judge import script
from opsmith.judge.session import Limits, Session
from opsmith.judge.snapshot import Snapshot
from opsmith.operators import Operator

#: The largest number of bytes that a program may send.
_MOST_BYTES = 1 << 30
#: The time limit for a program, as a multiple of a call's.
_CALLS = 10


class Program(Session):
    """A program that calls operators once with each of several sets of arguments.

    Args:
        spec: the files with the declarations.
        candidate: the files with the kernels.
        limits: the limits of the run; the program may take ten times as long as a call.
        main: a folder that does not exist yet, for the program.
    """

    def __init__(self, spec: Snapshot, candidate: Snapshot, limits: Limits, main: Path) -> None:
        super().__init__(spec, candidate, limits)
        main.mkdir()
        self._main = main / "main.py"
        self._main.write_bytes(Path(script.__file__).read_bytes())
        self._started: _Started | None = None

    def _last_id(self) -> int:
        """Draw an odd number: some kernels are wrong in processes with odd or even ids only."""
        return super()._last_id() + 1

    def run_all(
        self, operator: Operator, calls: Sequence[Mapping[str, Any]]
    ) -> Iterator[Callable[[], list[Tensor]]]:
        """Run the program; for each call, yield a function that returns its results.

        Raises:
            Failure: the program failed, or its output is not the results of the calls.
        """
        described, memory = [], []
        for arguments in calls:
            described.append(
                {"operator": operator.name, "arguments": describe_arguments(arguments)}
            )
            memory += [storage_bytes(tensor) for tensor in memories_in(arguments).values()]
        received = self._run(described, memory)
        try:
            head, _, data = received.partition(b"\n")
            answers = json.loads(head)
        except (ValueError, RecursionError):
            self._garbled("what came begins with no description")
        if not isinstance(answers, list) or len(answers) != len(calls):
            self._garbled(f"not {len(calls)} answers came")
        reader = Reader(data)
        for arguments, answer in zip(calls, answers, strict=True):
            yield partial(self._of_call, operator, arguments, answer, reader)
        with self._reading():
            reader.end()

    def _of_call(
        self, operator: Operator, arguments: Mapping[str, Any], answer: Any, reader: Reader
    ) -> list[Tensor]:
        with self._reading():
            values = self._values(operator, {"results": answer}, reader)
            sent = {name: storage_bytes(one) for name, one in memories_in(arguments).items()}
            after = {name: reader.take(len(data)) for name, data in sent.items()}
        return self._accepted(operator, arguments, values, sent, after)

    def start(self) -> None:
        """Start the program now: while it imports PyTorch, other calls are made."""
        if self._started is None:
            self._started = self._new()

    def _new(self) -> _Started:
        """Start the program, which waits for what to call."""
        given, give = os.pipe()
        taken, take = os.pipe()
        self._output, self._said = new_output(), 0
        box = self.box(self.folder)
        box = replace(box, placed={**box.placed, self._main.parent: self._main.parent})
        try:
            program = Boxed(
                box,
                # A shell is what most programs are started from.
                ["/bin/sh", "-c", '"$0" "$@"; exit $?', sys.executable, str(self._main)],
                self.environment(self.folder),
                descriptors=(take,),
                stdin=given,
                stdout=self._output,
            )
        finally:
            os.close(given)
            os.close(take)
        return _Started(program, give, taken, results=take)

    def _run(self, calls: list[Any], memory: list[bytes]) -> bytes:
        """Run the program, and return what it sent.

        Args:
            calls: a description of each call.
            memory: the bytes of the memory of all arguments.

        Raises:
            Failure: the program failed, or exceeded a limit.
        """
        self.start()
        started = self._started
        assert started is not None
        modules = [self.place_of(self.spec), self.place_of(self.candidate)]
        asked = {"modules": modules, "results": started.results, "calls": calls}
        data = b"".join([json.dumps(asked).encode(), b"\n", *memory])
        try:
            received = self._exchanged(started.give, started.taken, data)
            how, code = started.process.failure()
            if how:
                raise Failure(f"{how}{self._tail()}", code=code)
            ended = started.process.ended().get("code")
            if ended != 0:
                how = f"ended with exit code {ended}{self._tail()}"
                raise Failure(how, code="OPS-CALL-RAISED")
        finally:
            self._end()
        return received

    def _exchanged(self, give: int, taken: int, data: bytes) -> bytes:
        """Send bytes, and return those that come until the program ends.

        Raises:
            Failure: the program takes too long, or sends too much.
        """
        limit = self._within(_CALLS * self._time_limit)
        deadline = time.monotonic() + limit
        os.set_blocking(give, False)
        left, received = memoryview(data), bytearray()
        while True:
            writes = [give] if left else []
            patience = deadline - time.monotonic()
            if patience <= 0:
                raise self._hung(limit)
            readable, writable, _ = select.select([taken], writes, [], patience)
            if writable:
                try:
                    left = left[os.write(give, left) :]
                except BrokenPipeError:
                    left = left[:0]
                if not left:
                    _close_early(give)
            if readable:
                more = os.read(taken, 1 << 20)
                if not more:
                    return bytes(received)
                received += more
                if len(received) > _MOST_BYTES:
                    self._garbled(f"more than {_MOST_BYTES >> 30} GiB came")

    def _end(self) -> None:
        """End the program, if it was started, and close what belongs to it."""
        started, self._started = self._started, None
        if started is None:
            return
        started.process.kill()
        started.process.wait()
        for descriptor in (started.give, started.taken, self._output):
            os.close(descriptor)
        self._output = -1

    def stop(self) -> None:
        """End the program, if there is one."""
        self._end()
        super().stop()


@dataclass(frozen=True)
class _Started:
    """A program that was started.

    Attributes:
        process: the sandbox that it runs in.
        give: the descriptor for writing what to call.
        taken: the descriptor for reading what the program sends.
        results: the program's own descriptor for sending.
    """

    process: Boxed
    give: int
    taken: int
    results: int


def _close_early(descriptor: int) -> None:
    """End what is written to a descriptor that is closed later."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor, inheritable=False)
    os.close(null)
