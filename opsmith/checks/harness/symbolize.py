"""Find lines of the user's source for addresses in a library."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from emulators.lines import lines_of

if TYPE_CHECKING:
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
