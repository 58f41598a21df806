"""A fork of this process for calls that may end it."""

from __future__ import annotations

import faulthandler
import pickle
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from opsmith.system.processes.launch import fork
from opsmith.system.processes.server import Reply, answer_all, take_requests
from opsmith.system.processes.supervisor import answer
from opsmith.system.processes.supervisor_client import EndError, Supervised


class Copy(Supervised):
    """A fork of this process, created for the first question, and again after a call ended it.

    Forking takes as long as hundreds of small calls, so one fork answers many questions.

    Args:
        function: the function to call in the copy.
        seconds: time limit in seconds for all calls of one question.
    """

    def __init__(self, function: Callable[[Any], bool], seconds: float) -> None:
        super().__init__(fork(partial(_serve, function)))
        self._seconds = seconds

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.end()

    def answers(self, calls: Sequence[Any]) -> list[bool]:
        """Return the result of the function for each call, up to a call that ends the copy.

        Args:
            calls: arguments for the function, which can be pickled.
        """
        found: list[bool] = []
        deadline = time.monotonic() + self._seconds
        try:
            self.tell({"event": "calls"}, [pickle.dumps(list(calls))])
            while len(found) < len(calls):
                message, _ = self.receive(max(0.0, deadline - time.monotonic()))
                found.append(bool(message["says"]))
            self.receive(self._seconds)
        except EndError:
            pass
        return found

    def renew(self) -> None:
        """Have another copy answer the next question."""
        self._end_child()


def _serve(function: Callable[[Any], bool], answers: int) -> None:
    faulthandler.disable()  # an operator that ends the process is an expected answer
    # The copy lacks the computing threads of its parent, and would wait for them for ever.
    torch.set_num_threads(1)

    def reply(request: dict[str, Any], payload: bytes) -> Reply:
        for call in pickle.loads(payload):
            answer(answers, request=request["number"], event="called", says=function(call))
        return {"event": "done"}, b""

    answer_all(take_requests(), answers, reply)
