"""Run rows beside the first thread: further threads, each with a worker of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from opsmith.checks.report.rows import Row
from opsmith.checks.workers.schedule import Planned, Schedule
from opsmith.checks.workers.worker_client import Worker


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
