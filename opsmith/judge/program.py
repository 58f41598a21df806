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
from opsmith.checks.isolation.wire import Reader, describe_arguments, memories_in, storage_bytes
from opsmith.judge import script
from opsmith.judge.session import Limits, Session
from opsmith.judge.snapshot import Snapshot
from opsmith.operators import Operator
from opsmith.system.processes.memory import most_for
from opsmith.system.processes.sandbox.policy import Boxed
from opsmith.system.processes.supervisor_client import new_output

#: The largest number of bytes that a program may send.
_MOST_BYTES = 1 << 30
#: Bytes of memory for Python, its packages, and a compiler.
_BASE_BYTES = 3 << 29
#: Seconds between two looks at the memory of a program.
_LOOK_SECONDS = 0.1
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
        described, memory, largest = [], [], 0
        for arguments in calls:
            described.append(
                {"operator": operator.name, "arguments": describe_arguments(arguments)}
            )
            own = [storage_bytes(tensor) for tensor in memories_in(arguments).values()]
            memory += own
            largest = max(largest, sum(map(len, own)))
        # Results are kept until the end, so each call takes its own size for good.
        most = _BASE_BYTES + 2 * sum(map(len, memory)) + most_for(largest // 8)
        received = self._run(described, memory, most)
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
        except BaseException:
            self._close(give, taken)
            raise
        finally:
            os.close(given)
            os.close(take)
        return _Started(program, give, taken, results=take)

    def _run(self, calls: list[Any], memory: list[bytes], most: int) -> bytes:
        """Run the program, and return what it sent.

        Args:
            calls: a description of each call.
            memory: the bytes of the memory of all arguments.
            most: the most bytes of memory that the program may take.

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
            received = self._exchanged(started, data, most)
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

    def _exchanged(self, started: _Started, data: bytes, most: int) -> bytes:
        """Send bytes, and return those that come until the program ends.

        Raises:
            Failure: the program takes too long or too much memory, or sends too much.
        """
        give, taken = started.give, started.taken
        limit = self._within(_CALLS * self._time_limit)
        deadline = time.monotonic() + limit
        os.set_blocking(give, False)
        left, received = memoryview(data), bytearray()
        while True:
            writes = [give] if left else []
            patience = deadline - time.monotonic()
            if patience <= 0:
                raise self._hung(limit)
            wait = min(patience, _LOOK_SECONDS)
            readable, writable, _ = select.select([taken], writes, [], wait)
            if started.process.size() > most:
                how = f"{started.process.excess(most)}{self._tail()}"
                raise Failure(how, code="OPS-CALL-MEMORY")
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
        self._close(started.give, started.taken)

    def _close(self, *descriptors: int) -> None:
        """Close a program's descriptors, and what it printed to."""
        for descriptor in (*descriptors, self._output):
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
