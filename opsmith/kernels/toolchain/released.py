"""Find what a release of opsmith brings built, in place of compiling it once on each machine.

The wheel of a release has such files in `FOLDER`, which ``make release`` fills. They are compiled
for every processor of one family, perhaps by another compiler: with what loads them, they share no
type of the C++ library. Whatever else differs gives another key.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

from opsmith.kernels.toolchain.compilers import Compiler
from opsmith.system.files import digest, key_of
from opsmith.system.version import version

FOLDER = Path(__file__).parents[2] / "_opsmith" / "built"


def find(name: str, folders: Sequence[Path], facts: object, compiler: Compiler) -> Path | None:
    """Return the file that a release brings, if it is what would be compiled here.

    Args:
        name: the file's name.
        folders: the folders of sources and headers; all of their files decide the result.
        facts: what else decides it. It has no paths, since these differ between machines.
        compiler: the compiler; if the user gave it options, nothing is found.
    """
    if not FOLDER.is_dir() or compiler.flags or compiler.link_flags:
        return None
    found = FOLDER / place(name, folders, facts)
    return found if found.is_file() else None


def place(name: str, folders: Sequence[Path], facts: object) -> Path:
    """Return the path of a file in `FOLDER`; for the arguments see `find`."""
    return Path(key_of([version(), platform.machine(), facts, *map(digests, folders)]), name)


def digests(folder: Path) -> list[list[str | None]]:
    """Return the paths of the files in a folder, without bytecode, each with its digest."""
    files = (path for path in sorted(folder.rglob("*")) if path.suffix != ".pyc")
    return [[str(path.relative_to(folder)), digest(path)] for path in files if path.is_file()]
