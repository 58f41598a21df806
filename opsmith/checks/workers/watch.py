"""Implement ``opsmith check --watch``: check in a fork of this process whenever a file changes.

This process has imported all that a check needs but the user's files, which a fork imports anew.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsmith.errors import OpsmithError
from opsmith.system.files import read_json, write_atomically
from opsmith.system.processes.child_main import signal_at_parents_end
from opsmith.system.scratch import make_scratch, remove

if TYPE_CHECKING:
    from opsmith.operators import Operator

#: Seconds between two looks at the files, and seconds without a change before the check runs again:
#: editors write a file in several steps.
_LOOK_SECONDS, _QUIET_SECONDS = 0.1, 0.05
_HEADERS = ("*.h", "*.hpp", "*.hh", "*.inl", "*.cuh")

Stamps = Mapping[Path, int]


def watch(given: Sequence[str], prepare: Callable[[], None], say: Callable[..., None]) -> Path:
    """Return in a fork of this process, and in another one after every change, until Ctrl-C.

    Args:
        given: the files or modules to check, watched even if they cannot be imported.
        prepare: imports what rows would import, while this process waits for the first change.
        say: prints a line for the user, in a style.

    Returns:
        The file through which one check tells the next what it found.
    """
    named = [Path(name.partition("::")[0]) for name in given]
    files = {path.resolve() for path in named if path.is_file()}
    state = make_scratch("watch") / "state.json"
    prepared = False
    try:
        while True:
            started = time.time_ns()
            before = stamps(files)
            child = os.fork()
            if child == 0:
                signal_at_parents_end(signal.SIGTERM)
                return state
            os.waitpid(child, 0)
            files |= {Path(name) for name in (read_json(state, dict) or {}).get("files", ())}
            now = stamps(files)
            changed = _changed(now, before, started)
            if changed:
                # Its rows may be of what the files were, or of what they are.
                state.unlink(missing_ok=True)
            else:
                say(f"\nwatching {len(files)} files; Ctrl-C ends", style="dim")
                if not prepared:
                    prepare()
                    prepared = True
                changed = _wait(now)
            say(f"\n{_shown(changed)} changed", style="bold")
    except KeyboardInterrupt:
        say("")
        with contextlib.suppress(ChildProcessError, KeyboardInterrupt):
            os.waitpid(-1, 0)
        remove(state.parent)
        sys.exit(0)


def read(state: Path) -> Sequence[Any]:
    """Return what `write` was given by the last check."""
    found: Sequence[Any] = (read_json(state, dict) or {}).get("rows", ())
    return found


def write(state: Path, operators: Sequence[Operator], rows: Sequence[Any]) -> None:
    """Write the files that a check depends on, and its rows; expect that kernels are edited."""
    files = [str(path) for path in files_of(operators)]
    write_atomically(state, json.dumps({"files": files, "rows": rows}))
    for kernel in (kernel for one in operators for kernel in one.kernels.values()):
        if kernel.source is not None:
            with contextlib.suppress(OpsmithError):
                kernel.source.expect_edits()


def files_of(operators: Iterable[Operator]) -> list[Path]:
    """Return the user's files that operators depend on: modules, kernels, and their headers."""
    from opsmith.sources.importing import user_files

    found = set(user_files())
    for operator in operators:
        for kernel in operator.kernels.values():
            if kernel.source is not None:
                found.update(kernel.source.files())
                for folder in (kernel.source.path.parent, *kernel.source.include_dirs):
                    found.update(header.resolve() for p in _HEADERS for header in folder.glob(p))
    return sorted(path for path in found if path.is_file())


def stamps(files: Iterable[Path]) -> Stamps:
    """Return the time of the last change of each file; 0 for a missing file."""
    found = {}
    for path in files:
        try:
            found[path] = os.stat(path).st_mtime_ns
        except OSError:
            found[path] = 0
    return found


def _changed(now: Stamps, before: Stamps, started: int) -> list[Path]:
    """Return the files that changed while a check ran."""
    latest = time.time_ns()
    return [
        path
        for path, stamp in now.items()
        # A file that was not known before counts if it changed since the start. A time in the
        # future comes from a wrong clock, and does not count.
        if (stamp != before[path] if path in before else started < stamp <= latest)
    ]


def _wait(before: Stamps) -> list[Path]:
    """Wait for a change and for its end, and return the changed files."""
    while (after := stamps(before)) == before:
        time.sleep(_LOOK_SECONDS)
    while True:
        time.sleep(_QUIET_SECONDS)
        later = stamps(before)
        if later == after:
            return [path for path, stamp in later.items() if stamp != before[path]]
        after = later


def _shown(paths: Sequence[Path]) -> str:
    names = [os.path.relpath(path) for path in paths]
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
