"""The process that is timed: import an operator, receive arguments, call, return one result.

It is started as ``python -m opsmith.bench.process FD FOLDER``. It does not report times: the parent
measures from outside how long the requested calls take.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from opsmith.checks.isolation.wire import Reader, describe_result, element_bytes
from opsmith.kernels import HOST
from opsmith.operators.core.arguments import DTYPES, every_tensor_in, read_arguments
from opsmith.system.processes.server import Reply, answer_all, take_requests
from opsmith.system.processes.supervisor import answer, supervise
from opsmith.system.temporarily import uncollected


def main() -> None:
    """Serve timings."""
    supervise(int(sys.argv[1]), Path(sys.argv[2]), _prepare, _serve)


def _prepare() -> None:
    from opsmith.bench import contestants

    del contestants


def _serve(answers: int) -> None:
    requests = take_requests()
    answer_all(requests, answers, _Timed(requests, answers).reply)


class _Timed:
    """Serves requests about one operator at a time, and sets of arguments for it."""

    def __init__(self, requests: Any, answers: int) -> None:
        self._requests = requests
        self._answers = answers
        self._candidates: dict[str, Any] = {}
        self._ready: dict[str, Any] = {}
        self._sets: list[dict[str, Any]] = []
        self._memory: list[dict[str, Any]] = []
        self._described: Any = None
        self._flushing: Any = None
        self._device = HOST

    def reply(self, request: dict[str, Any], payload: bytes) -> Reply:
        """Serve a request by the method of its event; an exception is an answer too."""
        try:
            reply: Reply = getattr(self, f"do_{request['event']}")(request, payload)
        except BaseException as error:
            shown = f"{type(error).__name__}: {str(error).strip()}"[:2000]
            return {"event": "raised", "message": shown}, b""
        return reply

    def do_load(self, request: dict[str, Any], payload: bytes) -> Reply:
        """Import an operator, and list the contestants that can be timed in this process."""
        from opsmith.bench.contestants import contestants, references
        from opsmith.checks.isolation.import_location import Location, obtain
        from opsmith.sources.importing import import_module

        sys.path[:], sys.argv[:] = request["path"], request["argv"]
        operator = obtain(Location.from_json(request["location"]))
        if request["candidate"] is not None:
            import_module(request["candidate"])
        if request["reference"]:
            found = list(references(operator, request["device"]))
        else:
            found = list(contestants(operator))
        self._ready, self._sets, self._memory = {}, [], []
        self._candidates = {one.name: one for one in found}
        listed = [[one.name, one.device, one.obstacle] for one in found]
        return {"event": "loaded", "contestants": listed}, b""

    def do_prepare(self, request: dict[str, Any], payload: bytes) -> Reply:
        """Build and compile a contestant, and call it once."""
        contestant = self._candidates[request["contestant"]]
        self._device = contestant.device
        (arguments,) = self._placed(request, payload, [])
        with torch.no_grad():
            prepared = contestant.prepare(arguments)
            positional, keywords = prepared.bind(arguments)
            prepared.function(*positional, **keywords)
        self._synchronise()
        self._ready[contestant.name] = prepared
        # Collect and freeze now, so that these objects are not searched before every batch.
        gc.collect()
        gc.freeze()
        return {"event": "prepared"}, b""

    def do_forget(self, request: dict[str, Any], payload: bytes) -> Reply:
        """Drop everything that was prepared, since other sizes follow."""
        self._ready, self._sets, self._memory = {}, [], []
        # torch.compile counts how often a function was compiled, and does not forget dropped
        # results.
        torch.compiler.reset()
        return {"event": "forgotten"}, b""

    def do_place(self, request: dict[str, Any], payload: bytes) -> Reply:
        """Receive sets of arguments, into the memory of the previous sets if these fit."""
        if self._described != request["arguments"]:
            self._memory = []
        self._sets = self._placed(request, payload, self._memory)
        self._described = request["arguments"]
        return {"event": "placed"}, b""

    def do_time(self, request: dict[str, Any], payload: bytes) -> Reply:
        """Make the requested calls, between the signal to go and the answer ``done``."""
        prepared = self._ready[request["contestant"]]
        first, count, looked = request["first"], request["count"], request["looked"]
        calls = [prepared.bind(one) for one in self._sets[first : first + count]]
        before, (chosen, named), after = calls[:looked], calls[looked], calls[looked + 1 :]
        arguments = self._sets[first + looked]
        function = prepared.function
        passed = _memories((chosen, named))
        changeable = {
            name: tensor.view(-1)
            for name, tensor in every_tensor_in(arguments)
            if tensor.untyped_storage().data_ptr() in passed
        }
        with torch.no_grad(), self._quiet(request) as changes:
            for name, position, value in changes:
                if name in changeable:
                    changeable[name][position] = value
            for positional, keywords in before:
                function(*positional, **keywords)
            returned = function(*chosen, **named)
            # Copy at once, so that a kernel that goes on working after its return is caught with
            # unfinished results.
            seen = _copied(prepared.results(returned, arguments))
            for positional, keywords in after:
                function(*positional, **keywords)
            self._synchronise()
            answer(self._answers, request=request["number"], event="done")
        described = [describe_result(result) for result in seen]
        data = b"".join(element_bytes(result) for result in seen)
        return {"event": "results", "results": described, "changed": [*changeable]}, data

    def do_idle(self, request: dict[str, Any], payload: bytes) -> Reply:
        """Do everything that a batch does, except the calls."""
        self._device = request["device"]
        results = [
            torch.zeros(size, dtype=torch.uint8, device=self._device) for size in request["sizes"]
        ]
        with torch.no_grad(), self._quiet(request):
            _copied(results)
            self._synchronise()
            answer(self._answers, request=request["number"], event="done")
        return {"event": "idled"}, b""

    def do_machine(self, request: dict[str, Any], payload: bytes) -> Reply:
        """Copy memory, or multiply matrices, as often as requested."""
        work = self._work(request)
        work()
        with self._quiet({**request, "flush": 0}):
            for _ in range(request["count"]):
                work()
            self._synchronise()
            answer(self._answers, request=request["number"], event="done")
        return {"event": "worked"}, b""

    def _work(self, request: dict[str, Any]) -> Callable[[], Any]:

        device = self._device = request["device"]
        size, dtype = request["size"], DTYPES[request["dtype"]]
        if request["work"] == "copy":
            source = torch.ones(size, dtype=torch.uint8, device=device)
            copied = torch.zeros(size, dtype=torch.uint8, device=device)
            return lambda: copied.copy_(source)
        one = torch.randn(size, size, device=device).to(dtype)
        product = torch.empty_like(one)
        return lambda: torch.mm(one, one, out=product)

    @contextmanager
    def _quiet(self, request: dict[str, Any]) -> Iterator[list[list[Any]]]:
        """Flush the caches, report that everything is ready, and wait for the signal to go.

        Yields the changes of arguments that the signal holds. No garbage is collected in the block.
        """
        self._flush(request["flush"])
        self._synchronise()
        gc.collect()
        with uncollected():
            answer(self._answers, request=request["number"], event="ready")
            yield json.loads(self._requests.readline())

    def _flush(self, size: int) -> None:
        if not size:
            return
        if self._flushing is None or self._flushing.numel() * 4 != size:
            self._flushing = torch.zeros(size // 4, dtype=torch.int32, device=self._device)
        self._flushing.add_(1)

    def _synchronise(self) -> None:
        if self._device != HOST:
            getattr(torch, self._device).synchronize()

    def _placed(
        self, request: dict[str, Any], payload: bytes, known: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Read sets of arguments, each into the memory of `known` that has its place."""
        del known[request["count"] :]
        known += [{} for _ in range(request["count"] - len(known))]
        take = Reader(payload).take
        return [read_arguments(request["arguments"], take, self._device, one) for one in known]


def _memories(bound: Any) -> set[int]:
    """Return the addresses of the memory of all tensors in a call's arguments."""
    if isinstance(bound, torch.Tensor):
        return {bound.untyped_storage().data_ptr()}
    if isinstance(bound, dict):
        bound = bound.values()
    elif not isinstance(bound, (list, tuple)):
        return set()
    return set().union(*map(_memories, bound))


def _copied(results: list[Any]) -> list[Any]:
    return [result.detach().cpu().clone() for result in results]


if __name__ == "__main__":
    main()
