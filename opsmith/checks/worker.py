"""The process that kernels run in, so that one that crashes or hangs takes nothing else down.

Started by `opsmith.checks.isolation` as ``python -m opsmith.checks.worker FD``. Requests are lines
of JSON on standard input, answers are lines of JSON on the file descriptor FD, since kernels and
references may print.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from dataclasses import asdict
from typing import Any


def main() -> None:
    """Answer requests until standard input ends."""
    answers = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def answer(**message: Any) -> None:
        os.write(answers, (json.dumps(message) + "\n").encode())

    for line in sys.stdin:
        request = json.loads(line)
        sys.path[:] = request["path"]
        answer(**_serve(request, answer))


def _serve(request: dict[str, Any], answer: Any) -> dict[str, Any]:
    # Imported here, so that a worker that dies while importing has said nothing yet.
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
        answer(event="case", description=description, key=key, size=size)

    row = execute(check, subject, Settings(**request["settings"]), announce, request["crashed"])
    return {"event": "row", "row": asdict(row)}


if __name__ == "__main__":
    main()
