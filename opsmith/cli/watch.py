"""Implement ``opsmith check --watch``: run the check in a new process whenever a file changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from opsmith.cli import output
from opsmith.operators import Operator
from opsmith.sources.importing import user_files
from opsmith.system.scratch import scratch_folder
from opsmith.system.watchdog import watched

#: Seconds between two looks at the files, and seconds without a change before the check runs again:
#: editors write a file in several steps.
_LOOK_SECONDS, _QUIET_SECONDS = 0.25, 0.1
_HEADERS = ("*.h", "*.hpp", "*.hh", "*.inl", "*.cuh")

Stamps = Mapping[Path, int]


def watch(arguments: Sequence[str], given: Sequence[str]) -> None:
    """Check, and check again after every change, until Ctrl-C.

    Args:
        arguments: the arguments of ``opsmith check``, without ``--watch``.
        given: the files or modules among them, watched even if they cannot be imported.
    """
    named = [Path(name.partition("::")[0]) for name in given]
    files = {path.resolve() for path in named if path.is_file()}
    try:
        while True:
            started = time.time_ns()
            before = stamps(files)
            files |= _check(arguments)
            now = stamps(files)
            changed = _changed(now, before, started)
            if not changed:
                output.say(f"\nwatching {len(files)} files; Ctrl-C ends", style="dim")
                changed = _wait(now)
            output.say(f"\n{_shown(changed)} changed", style="bold")
    except KeyboardInterrupt:
        output.say("")


def _check(arguments: Sequence[str]) -> set[Path]:
    """Run a check, and return the files that its result depends on; empty if importing failed."""
    with scratch_folder("watch") as folder:
        listed = Path(folder, "files.json")
        command = [sys.executable, "-m", "opsmith", "check", *arguments]
        with watched() as variables:
            environment = {**os.environ, **variables}
            subprocess.run([*command, "--files-to", str(listed)], env=environment, check=False)
        try:
            return {Path(name) for name in json.loads(listed.read_text())}
        except (OSError, ValueError):
            return set()


def files_of(operators: Iterable[Operator]) -> list[Path]:
    """Return the user's files that operators depend on: modules, kernels, and their headers."""
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
