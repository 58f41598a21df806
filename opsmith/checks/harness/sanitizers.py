"""Short messages from the long reports of sanitizers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opsmith.checks.harness.build import Build

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
