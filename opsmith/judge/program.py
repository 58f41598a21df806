"""Call a candidate's kernels in a program of its own, in which nothing reveals the judge."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from opsmith.checks.isolation.kernel_client import accepted, failure_of, values_of
from opsmith.checks.isolation.wire import Reader, describe_arguments, memories_in, storage_bytes
from opsmith.judge import script
from opsmith.judge.session import Placement, after_hang, require_declared
from opsmith.operators import Operator
from opsmith.system.processes.launch import Channel
from opsmith.system.processes.memory import MemoryBound, most_for
from opsmith.system.processes.sandbox.policy import Boxed
from opsmith.system.processes.supervisor_client import EndError, GarbledError, Supervised
from opsmith.system.scratch import make_plain

#: Bytes of memory for Python, its packages, and a compiler.
_BASE_BYTES = 3 << 29
#: The time limit for a program, as a multiple of a call's.
_CALLS = 10


class Program(Supervised):
    """A program that calls operators once with each of several sets of arguments, and then ends.

    It has no supervisor, which a candidate could find; its sandbox ends what it starts.

    Args:
        place: where it runs; the program may take ten times as long as a call.
        main: a folder that does not exist yet, for the program.
    """

    who, garbled = "the candidate", "OPS-JUDGE-ANSWER"

    def __init__(self, place: Placement, main: Path) -> None:
        super().__init__(self._launched)
        main.mkdir()
        self._main = main / "main.py"
        self._main.write_bytes(Path(script.__file__).read_bytes())
        self._place = place
        self._limit = self._patience = _CALLS * place.limits.call
        self._exit_code: int | None = None
        self._thread = ThreadPoolExecutor(1)
        self._asked: Future[tuple[list[Any], Reader]] | None = None

    def new_folder(self) -> Path:
        """Create the folder for the program's files; its name does not tell their purpose."""
        return make_plain()

    def ask_ahead(self, operator: Operator, calls: Sequence[Mapping[str, Any]]) -> None:
        """Run the program while this process goes on; `run_all` of the calls gives the results."""
        self._drop()
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
        self.begin()  # in this thread: the program ends with the thread that starts it
        self._asked = self._thread.submit(self._run, described, memory, most)

    def run_all(
        self, operator: Operator, calls: Sequence[Mapping[str, Any]]
    ) -> Iterator[Callable[[], list[Tensor]]]:
        """Run the program; for each call, yield a function that returns its results."""
        if self._asked is None:
            self.ask_ahead(operator, calls)
        with self._failing():
            assert self._asked is not None
            asked, self._asked = self._asked, None
            answers, reader = asked.result()
        for arguments, answer in zip(calls, answers, strict=True):
            yield partial(self._of_call, operator, arguments, answer, reader)
        with self._failing(), self.reading():
            reader.end()

    def _drop(self) -> None:
        """End a program that still runs, whose results are not wanted any more."""
        if self._asked is not None:
            self.interrupt()
            wait([self._asked])
            self._asked = None

    def end(self) -> None:
        """End the program, also while it runs, and remove its folder."""
        self._drop()
        self._thread.shutdown()
        super().end()

    def _of_call(
        self, operator: Operator, arguments: Mapping[str, Any], answer: Any, reader: Reader
    ) -> list[Tensor]:
        with self._failing(), self.reading():
            values = values_of(operator, answer, reader)
            sent = {name: storage_bytes(one) for name, one in memories_in(arguments).items()}
            after = {name: reader.take(len(data)) for name, data in sent.items()}
        return accepted(operator, arguments, values, sent, after, require_declared)

    def _run(self, calls: list[Any], memory: list[bytes], most: int) -> tuple[list[Any], Reader]:
        """Run the program, in at most `most` bytes; return the descriptions of all results."""
        limit = self._patience = self._place.within(self._limit)
        self.make_ready()
        bound = MemoryBound(self._sandbox.size, most, self._sandbox.excess(most))
        place = self._place
        modules = [place.place_of(place.spec), place.place_of(place.candidate)]
        asked = {"modules": modules, "results": self._results, "calls": calls}
        try:
            message, data = self.ask(asked, memory, limit, bound)
            with self.reading():
                answers = message.get("answers")
                if not isinstance(answers, list) or len(answers) != len(calls):
                    raise GarbledError(f"not {len(calls)} answers came")
                self._require_end(limit, bound)
        finally:
            self.stop()
        return answers, Reader(data)

    def _require_end(self, limit: float, bound: MemoryBound) -> None:
        try:
            self._wait(lambda: bool(self._pending), limit, bound)
        except EndError:
            if self._exit_code != 0:
                raise
        else:
            raise GarbledError("more came than was announced")

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except EndError as end:
            if end.hung:
                self._limit = after_hang(self._limit)
            raise failure_of(end) from None

    # --- the process -------------------------------------------------------------------------

    def _launched(self, channel: Channel) -> Boxed:
        """Start the program, which waits for what to call."""
        self._results, self._exit_code = channel.answers, None
        box = self._place.box(self.folder, odd=1)
        return Boxed(
            replace(box, placed={**box.placed, self._main.parent: self._main.parent}),
            # A shell is what most programs are started from.
            ["/bin/sh", "-c", '"$0" "$@"; exit $?', sys.executable, str(self._main)],
            self._place.environment(self.folder),
            descriptors=(channel.answers,),
            stdin=channel.requests,
            stdout=channel.output,
        )

    @property
    def _sandbox(self) -> Boxed:
        assert isinstance(self._process, Boxed)
        return self._process

    def make_ready(self) -> None:
        """Start the program, unless it was started before; nothing tells that it is ready."""
        self.begin()
        self._child = self._sandbox.pid

    def _lost(self) -> EndError:
        """Describe how the program ended."""
        sandbox = self._sandbox
        try:
            sandbox.wait(self._patience)
        except subprocess.TimeoutExpired:
            return self._late(self._patience)
        how, code = sandbox.failure()
        self._exit_code = sandbox.ended().get("code")
        if not how and self._exit_code == 0:
            how = f"{self.who} gave an answer that cannot be read (it ended without results)"
            code = self.garbled
        how = how or f"ended with exit code {self._exit_code}"
        end = EndError(f"{how}{self._tail()}", code or "OPS-CALL-RAISED", again=False)
        self.stop()
        return end
