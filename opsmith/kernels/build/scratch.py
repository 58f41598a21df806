"""Temporary folders that are gone when whoever made them is, however that ends.

The process that made one holds a lock on it, which no kill leaves behind. So whoever makes the next
one sees which of them nobody holds, and removes those.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opsmith.kernels.build.files import SCRATCH, storing, temporary_folder
from opsmith.kernels.build.watchdog import watched

_PREFIX = "opsmith-"

_locks: dict[Path, int] = {}
_swept: set[tuple[int, Path]] = set()


@contextmanager
def scratch_folder(name: str) -> Iterator[Path]:
    """A fresh folder for temporary files, removed at the end of the block.

    Args:
        name: what it is for, as part of its name.
    """
    with held_folder(_temporary(), f"{_PREFIX}{name}-", SCRATCH) as folder:
        yield folder


@contextmanager
def watched_environment() -> Iterator[dict[str, str]]:
    """Variables for what is started in the block: it ends with this process, see `watched`.

    It has a folder of its own for temporary files: a compiler that is killed leaves some.
    """
    with scratch_folder("tmp") as folder, watched() as variables:
        yield {**variables, "TMPDIR": str(folder)}


@contextmanager
def held_folder(parent: Path, prefix: str, suffix: str) -> Iterator[Path]:
    """A fresh folder in `parent`, removed when the block ends, if it is still there then.

    Where this process is killed, another one removes it.
    """
    folder = _made(parent, prefix, suffix)
    try:
        with watched(folder):
            try:
                yield folder
            finally:
                remove(folder)
    finally:
        remove(folder)


def make_scratch(name: str) -> Path:
    """A fresh folder for temporary files, until `remove` removes it."""
    return _made(_temporary(), f"{_PREFIX}{name}-", SCRATCH)


def make_again(folder: Path) -> None:
    """Make a folder of `make_scratch` again, which others may have removed."""
    folder.mkdir(exist_ok=True)
    if _is_at(_locks[folder], folder):
        return
    os.close(_locks.pop(folder))
    while not _hold(folder):
        folder.mkdir(exist_ok=True)


def remove(folder: Path) -> None:
    """Remove a folder of `make_scratch`, if it is there."""
    shutil.rmtree(folder, ignore_errors=True)
    lock = _locks.pop(folder, None)
    if lock is not None:
        os.close(lock)


def sweep(parent: Path, prefix: str, suffix: str) -> None:
    """Remove the folders in `parent` that are called so and that no living process holds."""
    try:
        found = [
            entry.path
            for entry in os.scandir(parent)
            if entry.name.startswith(prefix) and entry.name.endswith(suffix)
        ]
    except OSError:
        return
    for folder in found:
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            pass  # a living process holds it, or nobody can tell
        finally:
            os.close(descriptor)


def _temporary() -> Path:
    """The folder for temporary files; swept when this process first asks for it."""
    folder = temporary_folder()
    if (os.getpid(), folder) not in _swept:
        _swept.add((os.getpid(), folder))
        sweep(folder, _PREFIX, SCRATCH)
    return folder


def _made(parent: Path, prefix: str, suffix: str) -> Path:
    while True:
        with storing(parent / "_"):
            folder = Path(tempfile.mkdtemp(prefix=prefix, suffix=suffix, dir=parent))
        # Another process may have swept it before it was locked.
        if _hold(folder):
            return folder


def _hold(folder: Path) -> bool:
    """Lock a folder, as long as this process lives; whether it is still there."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return False
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    if not _is_at(descriptor, folder):
        os.close(descriptor)
        return False
    _locks[folder] = descriptor
    return True


def _is_at(descriptor: int, folder: Path) -> bool:
    """Whether a folder that was opened is the one that is called so now."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(folder))
    except FileNotFoundError:
        return False
