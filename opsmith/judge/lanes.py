"""Hand pieces of work to processes, so that each piece has one answer, whatever ends.

A lane is an executor of one process: it works at one piece, and what ends the process loses that
piece alone. The lanes of this machine are here, those of other machines in `on_ray`.
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from queue import SimpleQueue
from typing import Any, NamedTuple

from opsmith.system.processes.child_main import signal_at_parents_end

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
        begin: a function and its arguments, called first in each lane. If it raises, the lane
            stays open and gets no piece, so that nothing else is started in its place.
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
        give(opened[-1], begin)

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
                    unfit.append(error)
                    say(str(error))
                    continue
                elif late or tries + 1 == TRIES:
                    times = f"after {patience:.0f} s" if late else f"{TRIES} times"
                    left -= 1
                    yield piece, Lost(f"the judge's process ended {times}: {error}")
                else:
                    say(f"a judge's process ended, and its candidate is judged again: {error}")
                    due.appendleft((piece, tries + 1))
                start()
                continue
            if piece is not None:
                left -= 1
                lost = Lost(f"the judge raised {type(error).__name__}: {error}")
                yield piece, future.result() if error is None else lost
            elif isinstance(error, Exception):
                unfit.append(error)
                say(str(error))
                continue
            lost_at_start = 0
            if due:
                piece, tries = due.popleft()
                give(lane, ask(piece), piece, tries)
    finally:
        for lane in opened:
            lane.end()
