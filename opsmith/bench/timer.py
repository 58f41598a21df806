"""Time an operator that runs in another process.

A timing is the time from sending the signal to go, which holds changes of arguments, to receiving
``done``, so it includes the cost of messages. A timing without calls measures that cost.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from opsmith.bench.inputs import Batch
from opsmith.checks.isolation.import_location import Location
from opsmith.checks.isolation.wire import Reader
from opsmith.errors import OpsmithError
from opsmith.kernels import HOST
from opsmith.system.processes.launch import python
from opsmith.system.processes.supervisor_client import EndError, GarbledError, Supervised
from opsmith.system.temporarily import uncollected

#: Time limit for importing and compiling, as a multiple of the time limit of a batch.
_PREPARING = 10

Change = tuple[str, int, float]
"""The name of a tensor, the position of an element in it, and the element's new value."""


class NotTimedError(OpsmithError):
    """A timing could not be completed; the message gives the reason."""


@dataclass(frozen=True)
class Entry:
    """A contestant that a process offers to time.

    Attributes:
        device: the device type of its arguments.
        obstacle: why it cannot run here; empty if it can.
    """

    name: str
    device: str
    obstacle: str


class Stopwatch(Supervised):
    """A process that calls one operator at a time, and a clock outside of it.

    Args:
        candidate: a further file with kernels, which only the timed process imports.
        reference: whether the process calls the reference, and no kernel.
        device: the device type, for the reference.
        time_limit: the seconds that a batch of calls may take.

    Attributes:
        prepared: the contestants that are ready; empty after the process ended.
    """

    who, most_bytes = "the timed process", 1 << 34

    def __init__(
        self,
        *,
        candidate: Path | None = None,
        reference: bool = False,
        device: str = HOST,
        time_limit: float = 60.0,
    ) -> None:
        self._load: dict[str, Any] = {
            "event": "load",
            "candidate": None if candidate is None else str(candidate),
            "reference": reference,
            "device": device,
            "path": [path for path in sys.path if path],
            "argv": sys.argv,
        }
        self._time_limit = time_limit
        self._entries: list[Entry] | None = None
        self.prepared: set[str] = set()
        super().__init__(python("opsmith.bench.process"))

    def turn_to(self, location: Location) -> None:
        """Time another operator from now on.

        Args:
            location: where the operator is declared.
        """
        self._load["location"] = location.to_json()
        self._entries = None

    def entries(self) -> list[Entry]:
        """Import the operator, and return the contestants that can be timed."""
        if self._entries is None:
            self.prepared.clear()
            try:
                message = self._ask(self._load, b"", "loaded", self._time_limit * _PREPARING)
            except NotTimedError as error:
                what = self._load["location"]["name"]
                raise NotTimedError(
                    f"{what}: the process to time cannot load it: {error}"
                ) from error
            listed = message.get("contestants")
            self._entries = [
                Entry(*map(str, one)) for one in (listed if isinstance(listed, list) else ())
            ]
        return self._entries

    def prepare(self, name: str, batch: Batch) -> None:
        """Build and compile a contestant for arguments like those of `batch`, and call it once."""
        self.entries()
        request = {"event": "prepare", "contestant": name, **batch.request()}
        self._ask(request, batch.payload(), "prepared", self._time_limit * _PREPARING)
        self.prepared.add(name)

    def forget(self) -> None:
        """Drop everything that was prepared."""
        self.entries()
        self.prepared.clear()
        self._ask({"event": "forget"}, b"", "forgotten", self._time_limit)

    def place(self, batch: Batch) -> None:
        """Send sets of arguments."""
        request = {"event": "place", **batch.request()}
        self._ask(request, batch.payload(), "placed", self._time_limit)

    def time(
        self,
        name: str,
        first: int,
        count: int,
        looked: int,
        flush: int,
        changes: Sequence[Change] = (),
    ) -> tuple[float, list[Tensor], list[Change]]:
        """Time several calls.

        Args:
            first: the position of the first call's arguments; each further call uses the next set.
            looked: number of the call whose results are copied as soon as it returns.
            flush: number of bytes to write before, so that no argument is in a cache.
            changes: elements of the one call's arguments that change after the clock has started,
                so that a kernel that worked ahead has another result.

        Returns:
            The seconds of all calls and of the messages, the results of the one call, and the
            changes that were made: none in an argument that was converted before.
        """
        request = {
            "event": "time",
            "contestant": name,
            "first": first,
            "count": count,
            "looked": looked,
            "flush": flush,
        }
        seconds, message = self._timed(request, "results", changes)
        changed = message.get("changed")
        made = [one for one in changes if isinstance(changed, list) and one[0] in changed]
        described: Any = message.get("results")
        reader = Reader(message["data"])
        with self._failing(), self.reading():
            results = [reader.result(one) for one in described]
            reader.end()
        return seconds, results, made

    def idle(self, sizes: Sequence[int], flush: int, device: str) -> float:
        """Return the seconds of everything in a batch except the calls.

        Args:
            sizes: the bytes of each result, which are copied.
            flush: number of bytes to write before.
        """
        request = {"event": "idle", "sizes": list(sizes), "flush": flush, "device": device}
        return self._timed(request, "idled")[0]

    def machine(self, work: str, size: int, dtype: str, count: int, device: str) -> float:
        """Return the seconds for copying memory, or for multiplying matrices, `count` times."""
        request = {"event": "machine", "work": work, "size": size, "dtype": dtype}
        return self._timed({**request, "count": count, "device": device}, "worked")[0]

    def forget_child(self) -> None:
        """Have the next process load the operator anew."""
        self._entries = None
        self.prepared.clear()

    # --- messages ----------------------------------------------------------------------------

    def _timed(
        self, request: Mapping[str, Any], event: str, changes: Sequence[Change] = ()
    ) -> tuple[float, dict[str, Any]]:
        go = f"{json.dumps(list(changes))}\n".encode()
        self._ask(request, b"", "ready", self._time_limit)
        with self._failing():
            with uncollected():
                started = time.perf_counter()
                self.send(go, self._time_limit)
                self._take("done", self._time_limit)
                seconds = time.perf_counter() - started
            return seconds, self._take(event, self._time_limit)

    def _ask(
        self, request: Mapping[str, Any], payload: bytes, event: str, seconds: float
    ) -> dict[str, Any]:
        if self._entries is None and request["event"] != "load":
            raise NotTimedError("the process ended before")
        with self._failing():
            self.tell(request, [payload], seconds)
            return self._take(event, seconds)

    def _take(self, event: str, seconds: float) -> dict[str, Any]:
        """Return the next message, which must be `event`, with the bytes that follow it."""
        message, data = self.receive(seconds)
        if message["event"] == "raised":
            raise NotTimedError(f"raised {message.get('message')}")
        with self.reading():
            if message["event"] != event:
                raise GarbledError(f"expected {event!r}, got {str(message['event'])[:40]!r}")
        return {**message, "data": data}

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Raise `NotTimedError` if the process ends in the block."""
        try:
            yield
        except EndError as end:
            raise NotTimedError(f"{end.how}{self._tail() if end.hung else ''}") from end
