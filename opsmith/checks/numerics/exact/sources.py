"""Find in the source of a kernel what a field cannot follow."""

from __future__ import annotations

import re
from pathlib import Path

_POINTERS = re.compile(
    r"\(\s*(?:const\s+)?(?:u?int\d+_t|unsigned|int|long|short|char|void|unsigned\s+\w+)\s*\*+\s*\)"
    r"\s*&|\bunion\b|\b(?:__)?asm(?:__)?\b|\bbit_cast\b|\b_mm\d*_|\bsvld|\bvld1"
)
_TABLE = re.compile(
    r"\b(?:static|const|constexpr)\b[\w\s]*(?:\bstd::array<\s*(?:float|double)\b"
    r"|\b(?:float|double)\s+\w+\s*\[)"
)


def obstacle(path: Path) -> str:
    """Return what in a source leaves the field, with its line; empty if nothing does."""
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        found = _POINTERS.search(line.partition("//")[0])
        if found is not None:
            return f"{found[0].strip()!r} at {path}:{number} may read the bits of a number"
    return ""


def table_in(path: Path) -> str:
    """Return the place of the first table of real numbers in a source; empty if there is none."""
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        if _TABLE.search(line.partition("//")[0]):
            return f"{path}:{number}"
    return ""
