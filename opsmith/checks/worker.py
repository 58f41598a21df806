"""The processes that kernels run in, so that one that crashes or hangs takes nothing else down.

Started by `opsmith.checks.isolation` as ``python -m opsmith.checks.worker FD``. This process only
imports, and forks: its child serves requests until it dies or there are no more, and then the next
child takes over at once, without importing PyTorch again. No tensor is computed before the fork,
so there are no threads that a child would miss.

Requests are lines of JSON on standard input, answers are lines of JSON on the file descriptor FD,
since kernels and references may print.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any


def main() -> None:
    """Fork children that answer requests, until standard input ends."""
    answers = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _import_all()
    while True:
        child = os.fork()
        if child == 0:
            _serve_all(answers)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code == _NO_MORE:
            return
        _answer(answers, event="ended", code=code)


#: The exit code of a child that has read all requests; a kernel is unlikely to choose it.
_NO_MORE = 86


def _import_all() -> None:
    from opsmith.checks import execute, locate, protocol

    protocol.all_checks()
    del execute, locate


def _answer(answers: int, **message: Any) -> None:
    os.write(answers, (json.dumps(message) + "\n").encode())


def _requests() -> Iterator[dict[str, Any]]:
    # Unbuffered: what this process has not asked for is there for the next one.
    pending = b""
    while True:
        while b"\n" not in pending:
            more = os.read(0, 1 << 16)
            if not more:
                return
            pending += more
        line, _, pending = pending.partition(b"\n")
        yield json.loads(line)


def _serve_all(answers: int) -> None:
    # A group of its own, to end it with whatever compiler it started.
    os.setpgid(0, 0)
    _answer(answers, event="ready", pid=os.getpid())
    for request in _requests():
        sys.path[:] = request["path"]
        _answer(answers, **_serve(request, answers))
    sys.stdout.flush()
    os._exit(_NO_MORE)


def _serve(request: dict[str, Any], answers: int) -> dict[str, Any]:
    from opsmith.checks.execute import execute
    from opsmith.checks.locate import Location, NotLocatedError, obtain
    from opsmith.checks.protocol import all_checks
    from opsmith.checks.trial import Settings

    location = request["location"]
    modules = tuple((name, file) for name, file in location["modules"])
    try:
        operator = obtain(Location(location["name"], modules, location["fingerprint"]))
    except NotLocatedError as error:
        return {"event": "elsewhere", "reason": str(error)}
    check = next(one for one in all_checks() if one.name == request["check"])
    subject = next(one for one in check.subjects(operator) if one.kernel == request["kernel"])

    def announce(description: str, key: str, size: int) -> None:
        _answer(answers, event="case", description=description, key=key, size=size)

    row = execute(check, subject, Settings(**request["settings"]), announce, request["crashed"])
    return {"event": "row", "row": asdict(row)}


if __name__ == "__main__":
    main()
