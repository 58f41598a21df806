"""The loop of a child process that answers requests: lines of JSON, each followed by bytes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import BinaryIO

from opsmith.system.processes.supervisor import answer, write_all
from opsmith.untyped import Json

Reply = tuple[dict[str, Json], bytes]
"""The fields of an answer, and the bytes that follow it."""


def take_requests() -> BinaryIO:
    """Return the stream of requests, and empty standard input."""
    requests = os.fdopen(os.dup(0), "rb", buffering=1 << 20)
    empty_input()
    return requests


def empty_input() -> None:
    """Redirect standard input from ``/dev/null``, so that no kernel consumes requests."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def each_request(requests: BinaryIO) -> Iterator[tuple[dict[str, Json], bytes]]:
    """Yield each request of a stream, and the bytes that follow it, until the stream ends."""
    for line in requests:
        request = json.loads(line)
        yield request, requests.read(request.get("bytes", 0))


def answer_all(
    requests: BinaryIO, answers: int, reply: Callable[[dict[str, object], bytes], Reply]
) -> None:
    """Answer requests until the input ends.

    Args:
        requests: the stream of requests.
        answers: the file descriptor for answers.
        reply: function that takes a request and the bytes that follow it. It raises no exception
            that the process shall outlive.
    """
    for request, payload in each_request(requests):
        fields, data = reply(request, payload)
        answer(answers, request=request["number"], bytes=len(data), **fields)
        write_all(answers, data)
