"""Call a candidate's kernels in a program of its own, in which nothing reveals the judge.

The process that runs the program is started as ``python -m opsmith.judge.program FD FOLDER``.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from torch import Tensor

from opsmith.checks.cases.failure import Failure
from opsmith.checks.isolation.kernel_server import run
from opsmith.checks.isolation.memory import bound_for
from opsmith.checks.isolation.wire import Reader, describe_arguments, memories_in, storage_bytes
from opsmith.judge import script
from opsmith.judge.session import ENVIRONMENT, Session
from opsmith.operators import Operator

#: Seconds between two looks at the program's memory.
_LOOK_SECONDS = 0.05


class Program(Session):
    """A program that calls operators once with each of several sets of arguments.

    Args:
        spec: the file with the declarations.
        candidate: the file with the kernels.
        time_limit: the seconds that a call may take; the program may take ten times that.
        place: the folder to run and build in.
    """

    module = "opsmith.judge.program"

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
        for name in ("results.json", "results.bin"):
            (self.place / name).unlink(missing_ok=True)
        asked = {"modules": [str(self.spec), str(self.candidate)], "calls": described}
        (self.place / "calls.json").write_text(json.dumps(asked))
        (self.place / "calls.bin").write_bytes(b"".join(memory))
        shutil.copyfile(script.__file__, self.place / "main.py")
        self._loaded = None  # the process that was loaded before ran another program
        self._setup = {"place": str(self.place), "elements": sum(map(len, memory)) // 8}
        ended = self.load().get("code")
        if ended:
            raise Failure(f"ended with exit code {ended}{self._tail()}", code="OPS-CALL-RAISED")
        try:
            answers = json.loads((self.place / "results.json").read_text())
            reader = Reader((self.place / "results.bin").read_bytes())
        except (OSError, ValueError) as error:
            self._garbled(str(error))
        if not isinstance(answers, list) or len(answers) != len(calls):
            self._garbled(f"not {len(calls)} answers came")
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


class _Started:
    """Starts the program, and ends it if it uses too much memory."""

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        environment["OPSMITH_CACHE"] = os.environ["OPSMITH_CACHE"]
        environment["PYTHONPATH"] = os.environ["PYTHONPATH"]  # the judge's own
        environment["TMPDIR"] = request["place"]
        # Start it from a shell, so that its parent's command line reveals nothing either.
        program = subprocess.Popen(
            ["/bin/sh", "-c", '"$0" main.py; exit $?', sys.executable],
            cwd=request["place"],
            env=environment,
            stdin=subprocess.DEVNULL,
        )
        bound = bound_for(os.getpid(), request["elements"])
        while True:
            try:
                return {"code": program.wait(timeout=_LOOK_SECONDS)}
            except subprocess.TimeoutExpired:
                for process in _children(program.pid):
                    if bound is not None and replace(bound, process=process).exceeded():
                        os.kill(process, signal.SIGKILL)
                        program.wait()
                        raise Failure(bound.excess, code="OPS-CALL-MEMORY") from None

    def operator(self, name: str) -> NoReturn:
        raise AssertionError(f"{name} is called in the program")


def _children(process: int) -> list[int]:
    """Return the children of a process; empty if the system does not list them."""
    try:
        return [*map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split())]
    except OSError:
        return []


if __name__ == "__main__":
    run(_Started())
