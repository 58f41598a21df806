"""Close the judge's process to what a candidate may write.

From the moment that a candidate may run, the judge imports nothing that changed since, and reads no
bytecode. All that it needs is imported before, so the rule is rarely asked for.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import linecache
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from opsmith.compat import torch_modules
from opsmith.judge.snapshot import Snapshot
from opsmith.system.processes.child_main import prctl

#: A folder that cannot exist, so that no bytecode is read from it or written to it.
_NOWHERE = os.path.join(os.devnull, "bytecode")
#: Modules that the judge uses only in some cases: to explain a failure, to search a smaller case,
#: to print a report.
_LATE = (
    "cProfile",
    "difflib",
    "hypothesis",
    "hypothesis.internal.conjecture.engine",
    "pdb",
    "profile",
    "pstats",
    "rich.console",
    "rich.table",
    "rich.text",
    torch_modules.COMPILER,
    torch_modules.WRITES,
    "torch.testing",
    "tqdm",
    "opsmith.checks.trial.attribution",
    "opsmith.checks.report.html",
    "opsmith.checks.report.json_junit",
    "opsmith.checks.report.table",
    "opsmith.checks.reproduction.snippet",
    "opsmith.signature.calls",
)
_PR_SET_DUMPABLE = 4
#: Seconds by which the clock of a file system may lag behind.
_LAG = 0.05


@contextmanager
def without_bytecode() -> Iterator[None]:
    """Import modules from their source in this block: neither read nor write bytecode."""
    before = sys.pycache_prefix, sys.dont_write_bytecode
    sys.pycache_prefix, sys.dont_write_bytecode = _NOWHERE, True
    try:
        yield
    finally:
        sys.pycache_prefix, sys.dont_write_bytecode = before


@contextmanager
def closed(files: Snapshot) -> Iterator[None]:
    """Import in this block no module that changed since, and no bytecode.

    Args:
        files: the specification. Its folders are taken off `sys.path`; what it still imports in
            the block comes from memory.
    """
    for name in _LATE:
        with suppress(ImportError):
            importlib.import_module(name)
    for copied, data in files.sources.items():
        lines = data.decode(errors="replace").splitlines(keepends=True)
        # An entry without a time of change is never read again.
        linecache.cache[str(copied)] = (len(data), None, lines, str(copied))
    path = list(sys.path)
    own = (files.root, files.original)
    sys.path[:] = [entry for entry in path if Path(entry or ".").resolve() not in own]
    finders = list(sys.meta_path)
    sys.meta_path[:] = [_Unchanged(time.time() - _LAG, finders, files)]
    try:
        with without_bytecode():
            yield
    finally:
        sys.meta_path[:] = finders
        sys.path[:] = path


@contextmanager
def unreadable() -> Iterator[None]:
    """Keep other processes of the user from reading and tracing this process in this block."""
    prctl(_PR_SET_DUMPABLE, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_DUMPABLE, 1)


class _Unchanged(MetaPathFinder):
    """Finds modules whose files have not changed since a time, and no others.

    Args:
        since: the time, in seconds since the epoch.
        others: the finders that are asked.
        files: the specification.
    """

    def __init__(self, since: float, others: list[Any], files: Snapshot) -> None:
        self._since = since
        self._others = others
        self._files = files

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find a module; pass over files that changed."""
        stem = self._files.root.joinpath(*name.split("."))
        for file in (stem / "__init__.py", stem.with_name(f"{stem.name}.py")):
            if file in self._files.sources:
                loader = _Remembered(name, str(file), self._files.sources[file])
                return importlib.util.spec_from_file_location(name, file, loader=loader)
        for finder in self._others:
            if finder is importlib.machinery.PathFinder:
                # One folder after the other, so that a planted file hides none behind it.
                asked: list[Sequence[str] | None] = [
                    [entry] for entry in (sys.path if path is None else path)
                ]
            else:
                asked = [path]
            for place in asked:
                found: importlib.machinery.ModuleSpec | None = finder.find_spec(name, place, target)
                if found is not None and self._is_unchanged(found):
                    if type(found.loader) is importlib.machinery.SourceFileLoader:
                        found.loader = _Source(found.loader.name, found.loader.path, self._since)
                    return found
        return None

    def _is_unchanged(self, found: importlib.machinery.ModuleSpec) -> bool:
        if found.origin in ("built-in", "frozen"):
            return True
        if found.loader is None or found.origin is None:
            return False  # a folder without code
        try:
            return not _changed(os.lstat(found.origin), self._since)
        except OSError:
            return False


class _Remembered(importlib.machinery.SourceFileLoader):
    """Loads a module whose source was read before."""

    def __init__(self, name: str, path: str, source: bytes) -> None:
        super().__init__(name, path)
        self._source = source

    def get_data(self, path: str) -> bytes:
        """Return the source."""
        return self._source


class _Source(importlib.machinery.SourceFileLoader):
    """Loads a module's source, unless it changes until it is read."""

    def __init__(self, name: str, path: str, since: float) -> None:
        super().__init__(name, path)
        self._since = since

    def get_data(self, path: str) -> bytes:
        """Return the contents of a file that has not changed."""
        with open(path, "rb") as file:
            data = file.read()
            if _changed(os.fstat(file.fileno()), self._since):
                raise ModuleNotFoundError(f"{path} changed while it was judged", name=self.name)
        return data


def _changed(status: os.stat_result, since: float) -> bool:
    # A program can choose the time of modification of a file, and not that of its last change.
    return status.st_ctime >= since
