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
from typing import Any, Generic, Protocol, TypeVar

from opsmith.system.processes.child_main import signal_at_parents_end

P = TypeVar("P")
#: How many processes may end over the same piece, or in a row while they start.
TRIES = 3


class Lane(Protocol):
    """An executor of one process; see `concurrent.futures.Executor`."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        """Have the process call a function; the future raises `BrokenExecutor` if it ends."""

    def end(self) -> None:
        """End the process, whatever it does."""


@dataclass(frozen=True)
class Lanes:
    """How lanes are opened.

    Attributes:
        open: opens one.
        count: the most that are open at a time.
        beside: the most that are on one machine.
    """

    open: Callable[[], Lane]
    count: int
    beside: int


@dataclass(frozen=True)
class Lost:
    """What stands in place of an answer: why there is none."""

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


@dataclass
class _Turn(Generic[P]):
    """What a lane does: it begins, or it works at a piece."""

    lane: Lane
    piece: P | None
    tries: int
    since: float


def each_answer(
    pieces: Sequence[P],
    lanes: Lanes,
    begin: tuple[Any, ...],
    ask: Callable[[P], tuple[Any, ...]],
    *,
    patience: float,
    say: Callable[[str], None],
) -> Iterator[tuple[P, Any]]:
    """Have lanes work at pieces, and yield each piece once, as soon as its answer is there.

    A lane gets its next piece when it has answered, so as many pieces are in memory as there are
    lanes. If a process ends, another one begins, and gets the piece that was lost before others.

    Args:
        pieces: the pieces, in the order in which they are handed out.
        lanes: how lanes are opened.
        begin: a function and its arguments, called first in each lane. If it raises, the lane
            stays open and gets no piece, so that nothing else is started in its place.
        ask: returns a function and its arguments for a piece; called when a lane takes it.
        patience: the seconds after which the end of a process counts as the piece's own fault.
        say: called with what `begin` raised, and with why a process ended.

    Yields:
        A piece, and the answer, or `Lost`.

    Raises:
        Exception: what `begin` raised in every lane.
    """
    due = deque((piece, 0) for piece in pieces)
    running: dict[Future[Any], _Turn[P]] = {}
    done: SimpleQueue[Future[Any]] = SimpleQueue()
    opened: list[Lane] = []
    unfit: list[Exception] = []
    lost_at_start = 0

    def give(lane: Lane, work: tuple[Any, ...], piece: P | None = None, tries: int = 0) -> None:
        try:
            future = lane.submit(*work)
        except BrokenExecutor as error:  # it ended while it had nothing to do
            future = Future()
            future.set_exception(error)
        running[future] = _Turn(lane, piece, tries, time.monotonic())
        future.add_done_callback(done.put)

    def start() -> None:
        opened.append(lanes.open())
        give(opened[-1], begin)

    try:
        for _ in range(min(lanes.count, len(due))):
            start()
        left = len(due)
        while left:
            if not running:
                raise unfit[0]
            future = done.get()
            turn = running.pop(future)
            try:
                answer = future.result()
            except BrokenExecutor as error:
                turn.lane.end()
                opened.remove(turn.lane)
                late = time.monotonic() - turn.since > patience
                if turn.piece is None:
                    lost_at_start += 1
                    if lost_at_start >= TRIES:
                        unfit.append(error)
                        say(str(error))
                        continue
                elif late or turn.tries + 1 == TRIES:
                    times = f"{TRIES} times" if not late else f"after {patience:.0f} s"
                    left -= 1
                    yield turn.piece, Lost(f"the judge's process ended {times}: {error}")
                else:
                    say(f"a judge's process ended, and its candidate is judged again: {error}")
                    due.appendleft((turn.piece, turn.tries + 1))
                start()
                continue
            except Exception as error:
                if turn.piece is None:
                    unfit.append(error)
                    say(str(error))
                    continue
                answer = Lost(f"the judge raised {type(error).__name__}: {error}")
            if turn.piece is not None:
                left -= 1
                yield turn.piece, answer
            else:
                lost_at_start = 0
            if due:
                piece, tries = due.popleft()
                give(turn.lane, ask(piece), piece, tries)
    finally:
        for lane in opened:
            lane.end()
