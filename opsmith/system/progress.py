"""Run a program that may take a while, with a sign of life on a terminal."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from opsmith.system.scratch import watched_environment
from opsmith.system.stopwatch import spending

QUIET_SECONDS = 1.0
"""A program that takes longer is announced on the terminal."""
#: The title that is on the terminal now.
_shown: list[Any] = []  # spinners of rich, which may not be there


@spending("compiling")
def run(
    command: Sequence[str], environment: Mapping[str, str], title: str
) -> subprocess.CompletedProcess[str]:
    """Run `command` and capture its output; on a terminal, show `title` meanwhile.

    If this process ends, the command ends too, with all processes that it started.
    """
    with (
        watched_environment() as variables,
        subprocess.Popen(
            command,
            env={**environment, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process,
    ):
        try:
            try:
                output, _ = process.communicate(timeout=QUIET_SECONDS)
            except subprocess.TimeoutExpired:
                output = _wait(process, title)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, "")


def _wait(process: subprocess.Popen[str], title: str) -> str:
    with status(title):
        return process.communicate()[0]


@contextlib.contextmanager
def status(title: str) -> Iterator[None]:
    """Show `title` on a terminal during the block, if this is the main thread.

    Within another such block, it stands in place of the other's title.
    """
    silent = not sys.stderr.isatty() or find_spec("rich") is None  # rich comes with an extra
    if silent or threading.current_thread() is not threading.main_thread():
        yield
        return
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner

    if _shown:
        before = _shown[0].text
        _shown[0].update(text=f"{title} …")
        try:
            yield
        finally:
            _shown[0].update(text=before)
        return
    spinner = Spinner("dots", f"{title} …")
    # Output to a file or a pipe goes there meanwhile, and not above the title.
    both = sys.stdout.isatty()
    with Live(spinner, console=Console(stderr=True), transient=True, redirect_stdout=both):
        _shown.append(spinner)
        try:
            yield
        finally:
            _shown.clear()
