"""A fork of this process for calls that may end it."""

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
    """A fork of this process, created for the first question, and again after a call ended it.

    Forking takes as long as hundreds of small calls, so one fork answers many questions.

    Args:
        seconds: time limit in seconds for all calls of one question.
    """

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._running: tuple[IO[bytes], IO[bytes], Callable[[], Any]] | None = None

    def ask(self, function: Callable[[Any], bool], calls: Sequence[Any]) -> list[bool]:
        """Return the result of `function` for each call, up to a call that ends the copy.

        Args:
            function: the function to call in the copy; the same in every question.
            calls: arguments for `function`, which can be pickled.
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
        """End the copy if it is running."""
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
        faulthandler.disable()  # an operator that ends the process is an expected answer
        # The copy lacks the computing threads of its parent, and would wait for them for ever.
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
