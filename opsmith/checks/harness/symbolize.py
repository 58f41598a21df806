"""Find the user's lines in what tools report: addresses in a library, and reports of sanitizers."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from opsmith.checks.harness.build import Build

#: opsmith's own files.
_OWN = Path(__file__).parents[2]


def innermost(places: Sequence[str], build: Build) -> str:
    """Find the innermost of `places` that is in the kernel's own folder.

    Args:
        places: ``address library``, innermost first, and ``=file:line`` where a line is known,
            as that of the call of a library's algorithm.
        build: the kernel that was called.

    Returns:
        The place as ``file:line``. If no address is in the kernel's folder, the line that is known;
        else the innermost place with a known file, which opsmith's headers are only without any
        other. Empty if no file is known,
        as without binutils.
    """
    known = [place[1:] for place in places if place.startswith("=")]
    own = [place.split(" ", 1)[0] for place in places if place.endswith(str(build.library))]
    from emulators.lines import lines_of  # the build needed the emulators

    library = build.with_lines() if own and shutil.which("addr2line") is not None else None
    if library is None:
        return (known or [""])[0]
    lines = lines_of(library, [int(address, 16) for address in own])
    users = [line for line in lines if _is_users(line, build)]
    others = [line for line in lines if not Path(line).is_relative_to(_OWN)]
    return (users or known or others or lines or [""])[0]


def _is_users(line: str, build: Build) -> bool:
    path = Path(line.rpartition(":")[0])
    return path.parent.resolve() == build.source.parent.resolve()


_SUMMARY = re.compile(r"^SUMMARY: (\w+): (.+)$", re.MULTILINE)
_UNDEFINED = re.compile(r"^(\S+?):(\d+):(?:\d+:)? runtime error: (.+)$", re.MULTILINE)
_FRAME = re.compile(r"^\s*#\d+ .*?(/[^\s:()]+):(\d+)", re.MULTILINE)
_ACCESS = re.compile(r"^((?:READ|WRITE) of size \d+)", re.MULTILINE)
_KINDS = {
    "heap-buffer-overflow": "accessed memory beside a tensor",
    "stack-buffer-overflow": "accessed memory beside a local variable",
    "global-buffer-overflow": "accessed memory beside a global variable",
    "heap-use-after-free": "accessed memory that it had freed",
    "stack-use-after-return": "accessed a local variable of a function that has returned",
    "use-of-uninitialized-value": "used memory that nothing has written",
    "data race": "two threads accessed the same memory, one of them writing, in no order",
}


def first_report(text: str, build: Build) -> str:
    """Summarise a sanitizer's first report, with the innermost line of the user's source.

    Args:
        text: the standard error output.
        build: the kernel that was called.

    Returns:
        A message; empty if `text` contains no report.
    """
    undefined = _UNDEFINED.search(text)
    if undefined is not None:
        return f"undefined behaviour: {undefined[3]}\n  at {undefined[1]}:{undefined[2]}"
    summary = _SUMMARY.search(text)
    if summary is None:
        return ""
    tool, rest = summary[1], summary[2]
    kind = next((kind for kind in _KINDS if rest.startswith(kind)), rest.split(" /")[0])
    access = _ACCESS.search(text)
    size = f", {access[1].lower()}" if access else ""
    frames = [(path, line) for path, line in _FRAME.findall(text)]
    users = [f for f in frames if Path(f[0]).parent.resolve() == build.source.parent.resolve()]
    where = "\n  at {}:{}".format(*(users or frames)[0]) if frames else ""
    return f"{_KINDS.get(kind, kind)} ({tool}: {kind}{size}){where}"
