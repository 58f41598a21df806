"""Running a program that may take a while, with a sign of life on a terminal."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence

_QUIET_SECONDS = 1.0


def run(
    command: Sequence[str], environment: Mapping[str, str], title: str
) -> subprocess.CompletedProcess[str]:
    """Run `command`; its output comes back, and on a terminal `title` is shown meanwhile."""
    process = subprocess.Popen(
        command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    try:
        try:
            output, _ = process.communicate(timeout=_QUIET_SECONDS)
        except subprocess.TimeoutExpired:
            output = _wait(process, title)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return subprocess.CompletedProcess(command, process.returncode, output, "")


def _wait(process: subprocess.Popen[str], title: str) -> str:
    if not sys.stderr.isatty():
        return process.communicate()[0]
    from rich.console import Console

    with Console(stderr=True).status(f"{title} …"):
        return process.communicate()[0]
