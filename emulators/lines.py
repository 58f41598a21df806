"""Find lines of a source for addresses in what was compiled from it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path


def lines_of(binary: Path, addresses: Sequence[int]) -> list[str]:
    """Return ``file:line`` of addresses, innermost first; nothing without binutils.

    Args:
        binary: a library or a program with debug information.
        addresses: return addresses, relative to where the binary begins.
    """
    tool = shutil.which("addr2line")
    if tool is None or not addresses:
        return []
    # The address of a frame is that of the instruction after the call.
    words = [f"{max(address - 1, 0):x}" for address in addresses]
    command = [tool, "-i", "-e", str(binary), *words]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    return [line.split(" (")[0] for line in done.stdout.splitlines() if not line.startswith("?")]
