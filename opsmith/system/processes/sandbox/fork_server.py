"""Fork processes into sandboxes, from a process that has imported their modules.

Importing torch takes seconds of a processor, a fork milliseconds. What a sandbox is for runs in the
forks alone, so this process stays as it was started::

    python -m opsmith.system.processes.sandbox.fork_server FD MODULE

A request on the socket is one byte with file descriptors: where the plan is read (see `enter`),
where the status is written, standard input, standard output, and those that the fork inherits. The
answer is the id of the fork, with a descriptor of the process.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import socket
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from opsmith.system.processes.sandbox import enter
from opsmith.system.processes.supervisor import leave_after

_MOST_DESCRIPTORS = 16


def main() -> None:
    """Import the module that the command line names, and answer requests until they end."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    module = sys.argv[2]
    del sys.path[0]  # the folder in which this process was started
    # Imported modules live on, so looking for garbage among them takes time for nothing.
    gc.disable()
    importlib.import_module(module)
    gc.freeze()
    while True:
        asked, descriptors, _, _ = socket.recv_fds(requests, 1, _MOST_DESCRIPTORS)
        if not asked:
            return
        _forget_ended()
        parent = os.getpid()
        process = os.fork()
        if not process:
            leave_after(partial(_begin, module, parent, descriptors))
        handle = os.pidfd_open(process)
        socket.send_fds(requests, [str(process).encode()], [handle])
        for descriptor in (handle, *descriptors):
            os.close(descriptor)


def _forget_ended() -> None:
    """Have the system forget the forks that ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _begin(module: str, parent: int, descriptors: Sequence[int]) -> NoReturn:
    """Enter the sandbox of a request, and run the module there."""
    given, status, stdin, stdout, *inherited = descriptors
    os.setsid()
    for source, target in ((stdin, 0), (stdout, 1), (stdout, 2)):
        os.dup2(source, target)
    with os.fdopen(given, "rb") as plan:
        told = json.loads(plan.read())
    told |= {"status": status, "descriptors": inherited, "parent": parent}
    line, name = (Path(f"/proc/self/{file}").read_bytes() for file in ("cmdline", "comm"))

    def become() -> None:
        # The first process of the sandbox has taken another name.
        enter.take_name(line, name.strip())
        leave_after(partial(_run, module, told))

    enter.enter(told, become)


def _run(module: str, plan: enter.Plan) -> None:
    """Run the module as a new Python would, with the arguments ``FD FOLDER``."""
    gc.enable()
    sys.argv[1:] = [*map(str, plan["descriptors"]), plan["folder"]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
