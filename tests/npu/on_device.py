"""Run tests in a process where the tests' device is PyTorch's PrivateUse1.

There is one such device per process, and its name is in everything that opsmith compiles there.
"""

from __future__ import annotations

import functools
import importlib
import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

_SECONDS = 300  # a test that waits for a queue that is held would wait for ever


class Elsewhere(Exception):
    """What a test raised in the other process, with its traceback."""


def _serve(calls: Connection) -> None:
    importlib.import_module("backend")
    while True:
        module, name, arguments = calls.recv()
        try:
            getattr(importlib.import_module(module), name).__wrapped__(**arguments)
        except BaseException:
            calls.send(traceback.format_exc())
        else:
            calls.send("")


class _Process:
    def __init__(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._calls, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def call(self, *what: Any) -> None:
        try:
            self._calls.send(what)
            if not self._calls.poll(_SECONDS):
                self._process.kill()
                raise Elsewhere(f"{what[1]} did not end within {_SECONDS} s")
            failure = self._calls.recv()
        except (EOFError, BrokenPipeError):
            self._process.join()
            raise Elsewhere(f"{what[1]} ended with {self._process.exitcode}") from None
        if failure:
            raise Elsewhere(f"\n{failure}")

    def is_alive(self) -> bool:
        return self._process.is_alive()


_PROCESSES: list[_Process] = []


def on_device(test: Callable[..., None]) -> Callable[..., None]:
    """Decorate a test function, whose arguments can be pickled."""

    @functools.wraps(test)
    def elsewhere(**arguments: Any) -> None:
        if not _PROCESSES or not _PROCESSES[-1].is_alive():
            _PROCESSES.append(_Process())
        _PROCESSES[-1].call(test.__module__, test.__name__, arguments)

    return elsewhere
