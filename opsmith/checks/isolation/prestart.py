"""Fork workers from a process that has imported everything and computed nothing.

So a run imports torch once. No import of this module imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from opsmith.system.processes.launch import fork, surroundings
from opsmith.system.processes.sandbox.fork_client import kept_server
from opsmith.system.processes.sandbox.policy import passed_on
from opsmith.system.processes.supervisor import Serve
from opsmith.system.processes.supervisor_client import EndError, Supervised

#: The module that worker processes run.
MODULE = "opsmith.checks.worker_server"
#: The module that a judge's candidate runs in.
CANDIDATE = "opsmith.judge.candidate"

_begun: list[tuple[Supervised, tuple[object, ...]]] = []


@contextmanager
def begun(count: int, serve: Serve) -> Iterator[None]:
    """Fork processes for the next workers, and end the unused ones when the block ends.

    Args:
        count: the number of processes; 0 if this process runs threads, which a fork would not copy.
        serve: what a worker runs. This process has imported all that it needs, with the variables
            `faster`.
    """
    for _ in range(count):
        found = Supervised(fork(serve, session=True))
        found.begin()
        _begun.append((found, _finds()))
    try:
        yield
    finally:
        while _begun:
            _end(_begun.pop()[0])


def begin_candidates() -> None:
    """Start the process whose forks, each in a sandbox, run the candidates of a judge."""
    kept_server(CANDIDATE, passed_on())


def take() -> Supervised | None:
    """Return a prestarted process, if a process started now would be the same; else `None`."""
    while _begun:
        found, finds = _begun.pop(0)
        if finds == _finds():
            return found
        _end(found)
    return None


def _finds() -> tuple[object, ...]:
    """Return the state that a process started now inherits, without `sys.path`.

    Each request contains `sys.path`.
    """
    process, variables, _ = surroundings()
    return process, variables


def _end(found: Supervised) -> None:
    # The process has children as soon as it is ready, and ends them with itself from then on.
    with suppress(EndError):
        found.make_ready()
    found.end()
