"""A copy of this process, which a call may end."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import signal
import weakref
from collections.abc import Callable, Sequence
from typing import IO, Any

import torch


class Copy:
    """A copy of this process, made when it is first asked, and again where a call ended it.

    To copy a process takes as long as hundreds of small calls.

    Args:
        seconds: how long the calls of one question may take together.
    """

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._running: tuple[IO[bytes], IO[bytes], Callable[[], Any]] | None = None

    def ask(self, function: Callable[[Any], bool], calls: Sequence[Any]) -> list[bool]:
        """What `function` says of each call, until one ends the copy.

        Args:
            function: the same in every question to one copy.
            calls: what can be pickled.
        """
        if self._running is None:
            self._running = self._start(function)
        questions, answers, _ = self._running
        pickle.dump(list(calls), questions)
        questions.flush()
        said = answers.read(len(calls))
        if len(said) < len(calls):
            self.end()
        return [answer == ord("y") for answer in said]

    def end(self) -> None:
        """End the copy, if there is one."""
        if self._running is not None:
            *_, end = self._running
            self._running = None
            end()

    def _start(
        self, function: Callable[[Any], bool]
    ) -> tuple[IO[bytes], IO[bytes], Callable[[], Any]]:
        asked, questions = os.pipe()
        answers, said = os.pipe()
        child = os.fork()
        if not child:
            try:
                os.close(questions)
                os.close(answers)
                self._serve(function, asked, said)
            finally:
                os._exit(0)
        os.close(asked)
        os.close(said)
        ends = open(questions, "wb"), open(answers, "rb")  # noqa: SIM115 (closed with the copy)
        return *ends, weakref.finalize(self, _end, child, *ends)

    def _serve(self, function: Callable[[Any], bool], asked: int, said: int) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        faulthandler.disable()  # that an operator ends its process is an answer
        # A copy has none of the threads that its parent computed with, and would wait for them.
        torch.set_num_threads(1)
        with open(asked, "rb") as questions:
            while questions.peek(1):
                calls = pickle.load(questions)
                signal.alarm(self._seconds)
                for call in calls:
                    os.write(said, b"y" if function(call) else b"n")
                signal.alarm(0)


def _end(child: int, *ends: IO[bytes]) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    for end in ends:
        with contextlib.suppress(BrokenPipeError):
            end.close()
