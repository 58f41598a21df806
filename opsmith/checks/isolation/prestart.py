"""Processes that are started before there is anything to ask them.

Importing torch takes them seconds, and whoever starts them too: so they begin first. Nothing that
is imported here imports torch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from opsmith.checks.isolation.launch import python, surroundings
from opsmith.checks.isolation.supervisor_client import Started, new_folder, started
from opsmith.kernels.build.scratch import remove

#: What the processes of checks run.
MODULE = "opsmith.checks.worker_server"

_begun: list[tuple[Started, tuple[object, ...]]] = []


@contextmanager
def begun(count: int) -> Iterator[None]:
    """Start processes that the next workers take; those that none has taken end with this."""
    for _ in range(count):
        _begun.append((started(python(MODULE), new_folder()), _finds()))
    try:
        yield
    finally:
        while _begun:
            _end(_begun.pop()[0])


def take() -> Started | None:
    """A process that was started ahead, if one started now would be the same."""
    while _begun:
        found, finds = _begun.pop(0)
        if finds == _finds():
            return found
        _end(found)
    return None


def _finds() -> tuple[object, ...]:
    """What a process that is started now finds, but for `sys.path`, which each request tells."""
    process, variables, _ = surroundings()
    return process, variables


def _end(ended: Started) -> None:
    # It imports, and started nothing yet.
    ended.process.kill()
    ended.process.wait()
    os.close(ended.requests)
    os.close(ended.answers)
    remove(ended.folder)
