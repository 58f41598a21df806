"""A worker that is kept from one run of checks to the next, where a process has many: in tests.

Starting one takes two seconds, most of them to import torch. What a run leaves in it ends with the
run: the processes that imported operators, and the files. The supervisor stays, which imports
torch and the checks and nothing else, and forks for the next run.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from opsmith.checks.isolation.launch import surroundings
from opsmith.checks.worker_client import Worker

_lock = threading.Lock()
_keeps = False
_kept: Worker | None = None


def keep_workers() -> None:
    """Keep one from now on, until this process ends."""
    global _keeps
    if not _keeps:
        _keeps = True
        atexit.register(_end)


@contextmanager
def borrowed() -> Iterator[Worker]:
    """The worker that is kept, or another; ended afterwards, or kept for the next run."""
    worker = _taken() or Worker()
    try:
        yield worker
    except BaseException:
        worker.end()
        raise
    if not _give(worker):
        worker.end()


def _taken() -> Worker | None:
    """The worker that is kept, if one started now would be the same."""
    found = _pop()
    if found is None or found.started_in == surroundings():
        return found
    found.end()
    return None


def _give(worker: Worker) -> bool:
    """Keep a worker, if there is none; whether it is kept."""
    global _kept
    with _lock:
        if not _keeps or _kept is not None or not worker.renew():
            return False
        _kept = worker
    return True


def _pop() -> Worker | None:
    global _kept
    with _lock:
        found, _kept = _kept, None
    # In a fork of the process that started it, it is that one's.
    return found if found is None or found.is_own() else None


def _end() -> None:
    found = _pop()
    if found is not None:
        found.end()
