"""Hand pieces of work to processes, so that each piece has one answer, whatever ends.

A lane is an executor of one process: it works at one piece, and what ends the process loses that
piece alone. The lanes of this machine are here, those of other machines in `on_ray`.
"""

from __future__ import annotations

import os
import platform
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from multiprocessing import get_context
from queue import SimpleQueue
from typing import Any, NamedTuple

from opsmith.errors import LoadError
from opsmith.system.processes.child_main import signal_at_parents_end
from opsmith.system.version import version

#: How many processes may end over the same piece, or in a row while they start.
TRIES = 3


@dataclass(frozen=True)
class Lanes:
    """How lanes are opened: by which function, the most at a time, the most on one machine."""

    open: Callable[[], Any]
    count: int
    beside: int


class Lost(NamedTuple):
    """Stands in place of an answer, and says why there is none."""

    reason: str


class LocalLane(ProcessPoolExecutor):
    """A process of this machine, which ends with this one."""

    def __init__(self) -> None:
        # A fork would share threads that compute.
        super().__init__(1, get_context("spawn"), _begin_process)
        # Ctrl-C reaches the process too, which is to end in order; it inherits this mask.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._id = self.submit(os.getpid)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def end(self) -> None:
        """End the process, whatever it does."""
        with suppress(BrokenExecutor, ProcessLookupError):
            os.kill(self._id.result(), signal.SIGTERM)
        self.shutdown(cancel_futures=True)


def _begin_process() -> None:
    # A handler, since programs inherit a signal that is ignored.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal_at_parents_end(signal.SIGTERM)


def versions() -> dict[str, str]:
    """Return what an answer depends on, besides what a lane is given."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"opsmith": version(), "torch": metadata.version("torch"), "Python": python}


def _begin(asked: dict[str, str], function: Callable[..., Any], *arguments: Any) -> None:
    """Call the function, unless this machine has other versions than the one that asks."""
    here = versions().items()
    other = [f"{name} {one}, not {asked[name]}" for name, one in here if one != asked[name]]
    if other:
        raise LoadError(
            f"{platform.node()} gets no work: it has {', '.join(other)}, so its results would be "
            "others. Install the versions of the machine that gives the command."
        )
    function(*arguments)


def each_answer(
    pieces: Sequence[Any],
    lanes: Lanes,
    begin: tuple[Any, ...],
    ask: Callable[[Any], tuple[Any, ...]],
    *,
    patience: float,
    say: Callable[[str], None],
) -> Iterator[tuple[Any, Any]]:
    """Have lanes work at pieces, and yield each piece and its answer, or `Lost`, as soon as it is.

    A lane gets its next piece when it has answered, so as many pieces are in memory as there are
    lanes. If a process ends, another one begins, and gets the piece that was lost before others.

    Args:
        pieces: the pieces, in the order in which they are handed out; none is `None`.
        lanes: how lanes are opened.
        begin: a function and its arguments, called first in each lane. If it raises, or the lane's
            machine has other versions, the lane stays open and gets no piece, so that nothing else
            is started in its place.
        ask: returns a function and its arguments for a piece; called when a lane takes it.
        patience: the seconds after which the end of a process counts as the piece's own fault.
        say: called with what `begin` raised, and with why a process ended.

    Raises:
        Exception: what `begin` raised in every lane.
    """
    due = deque((piece, 0) for piece in pieces)
    #: The lane, the piece or `None` while it begins, how often that was tried, and since when.
    running: dict[Future[Any], tuple[Any, Any, int, float]] = {}
    done: SimpleQueue[Future[Any]] = SimpleQueue()
    opened: list[Any] = []
    idle: list[Any] = []
    unfit: list[Exception] = []
    lost_at_start, left = 0, len(due)

    def give(lane: Any, work: tuple[Any, ...], piece: Any = None, tries: int = 0) -> None:
        try:
            future = lane.submit(*work)
        except BrokenExecutor as error:  # it ended while it had nothing to do
            future = Future()
            future.set_exception(error)
        running[future] = (lane, piece, tries, time.monotonic())
        future.add_done_callback(done.put)

    def start() -> None:
        opened.append(lanes.open())
        give(opened[-1], (_begin, versions(), *begin))

    try:
        for _ in range(min(lanes.count, left)):
            start()
        while left:
            if not running:
                raise unfit[0]
            future = done.get()
            lane, piece, tries, since = running.pop(future)
            error = future.exception()
            if isinstance(error, BrokenExecutor):
                lane.end()
                opened.remove(lane)
                lost_at_start += piece is None
                late = time.monotonic() - since > patience
                if piece is None and lost_at_start < TRIES:
                    pass
                elif piece is None:
                    unfit.append(LoadError(f"processes end while they begin: {error}"))
                    say(str(error))
                    continue
                elif late or tries + 1 == TRIES:
                    times = f"after {patience:.0f} s" if late else f"{TRIES} times"
                    left -= 1
                    yield piece, Lost(f"its process ended {times}: {error}")
                else:
                    say(f"a process ended, and what it worked at begins again: {error}")
                    due.appendleft((piece, tries + 1))
                if not idle:  # where a machine is gone, there may be no place for another process
                    start()
            elif piece is None and isinstance(error, Exception):
                unfit.append(error)
                say(str(error))
            else:
                if piece is not None:
                    left -= 1
                    lost = Lost(f"its process raised {type(error).__name__}: {error}")
                    yield piece, future.result() if error is None else lost
                lost_at_start = 0
                idle.append(lane)
            while idle and due:
                piece, tries = due.popleft()
                give(idle.pop(), ask(piece), piece, tries)
    finally:
        for lane in opened:
            lane.end()
