"""Keep a worker from one run of checks to the next, in processes that make many runs (tests).

Starting a worker takes two seconds, most of them to import torch. When a run ends, the worker's
processes that imported operators end, and its files are removed. The supervisor, which imports only
torch and the checks, stays, and forks for the next run.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from opsmith.checks.report.rows import Row
from opsmith.checks.workers.schedule import Planned, Schedule
from opsmith.checks.workers.worker_client import Worker
from opsmith.system.processes.launch import surroundings

_lock = threading.Lock()
_keeps = False
_kept: Worker | None = None


def keep_workers() -> None:
    """Keep one worker from now on, until this process ends."""
    global _keeps
    if not _keeps:
        _keeps = True
        atexit.register(_end)


@contextmanager
def borrowed() -> Iterator[Worker]:
    """Lend the kept worker, or a new one, to the block; afterwards keep it or end it."""
    worker = _taken() or Worker()
    try:
        yield worker
    except BaseException:
        worker.end()
        raise
    if not _give(worker):
        worker.end()


def _taken() -> Worker | None:
    """Return the kept worker, unless a worker started now would be different."""
    found = _pop()
    if found is None or found.started_in == surroundings():
        return found
    found.end()
    return None


def _give(worker: Worker) -> bool:
    """Keep a worker if none is kept yet; return whether it was kept."""
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
    # In a fork of the process that started the worker, the worker belongs to that process.
    return found if found is None or found.is_own() else None


def _end() -> None:
    found = _pop()
    if found is not None:
        found.end()


@contextmanager
def helped(
    schedule: Schedule,
    plan: Sequence[Planned],
    run_row: Callable[[int, Worker], Row | None],
    count: int,
) -> Iterator[None]:
    """Run rows in further threads, each with a worker of its own, while the block runs."""

    def help_(worker: Worker) -> None:
        runtime = ""
        try:
            while (position := schedule.take(runtime)) is not None:
                runtime = plan[position][1].runtime
                row = run_row(position, worker)
                if row is None:
                    schedule.give_back(position)
                else:
                    schedule.give(position, row)
        except BaseException as error:
            schedule.end(error)

    with ExitStack() as stack:
        workers = [stack.enter_context(Worker()) for _ in range(count)]
        threads = [threading.Thread(target=help_, args=(worker,)) for worker in workers]
        for worker, thread in zip(workers, threads, strict=True):
            # The worker imports its modules while the kernel is being built.
            worker.begin()
            thread.start()
        try:
            yield
        finally:
            schedule.end()
            for worker, thread in zip(workers, threads, strict=True):
                if thread.is_alive():
                    worker.interrupt()
                thread.join()
