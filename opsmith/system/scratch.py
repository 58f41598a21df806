"""Temporary folders that are removed even if the process that made them is killed.

A process holds a lock on each folder that it made; the lock ends with the process. The next process
that makes such a folder finds the folders that are no longer locked, and removes them.
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

from opsmith.system.files import SCRATCH, storing, temporary_folder
from opsmith.system.watchdog import watched

_PREFIX = "opsmith-"

_locks: dict[Path, int] = {}
_swept: set[tuple[int, Path]] = set()


@contextmanager
def scratch_folder(name: str) -> Iterator[Path]:
    """Yield a new folder for temporary files, and remove it at the end of the block.

    Args:
        name: a part of the folder's name that says what it is for.
    """
    with held_folder(_temporary(), f"{_PREFIX}{name}-", SCRATCH) as folder:
        yield folder


@contextmanager
def watched_environment() -> Iterator[dict[str, str]]:
    """Yield environment variables for processes that are to end with this one, see `watched`.

    They set a temporary folder just for the block, since a killed compiler leaves files behind.
    """
    with scratch_folder("tmp") as folder, watched() as variables:
        yield {**variables, "TMPDIR": str(folder)}


@contextmanager
def held_folder(parent: Path, prefix: str, suffix: str) -> Iterator[Path]:
    """Yield a new folder in `parent`, and remove it at the end of the block.

    If this process is killed, another one removes the folder.
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
    """Create a folder for temporary files that stays until `remove` is called."""
    return _made(_temporary(), f"{_PREFIX}{name}-", SCRATCH)


def make_plain() -> Path:
    """Create a folder like `make_scratch`, with a name that does not tell what it is for."""
    return _made(temporary_folder(), "tmp", "")


def make_again(folder: Path) -> None:
    """Create a folder of `make_scratch` again if another process removed it."""
    folder.mkdir(exist_ok=True)
    if _is_at(_locks[folder], folder):
        return
    os.close(_locks.pop(folder))
    while not _hold(folder):
        folder.mkdir(exist_ok=True)


def remove(folder: Path) -> None:
    """Remove a folder of `make_scratch`, if it exists."""
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        _remove_stubborn(folder)
    lock = _locks.pop(folder, None)
    if lock is not None:
        os.close(lock)


def _remove_stubborn(folder: Path) -> None:
    """Remove a folder that holds folders without permissions, or too many in each other."""
    number = 0
    while folder.is_dir() and not folder.is_symlink():
        folder.chmod(0o700)
        entries = list(os.scandir(folder))
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            os.chmod(entry.path, 0o700)
            for inner in list(os.scandir(entry.path)):
                if inner.is_dir(follow_symlinks=False):
                    # Lift it, so that no path becomes longer than the system takes.
                    os.chmod(inner.path, 0o700)
                    number += 1
                    os.rename(inner.path, folder / f".{number}-{os.urandom(4).hex()}")
                else:
                    os.unlink(inner.path)
            os.rmdir(entry.path)
        if not entries:
            folder.rmdir()


def sweep(parent: Path, prefix: str, suffix: str) -> None:
    """Remove the unlocked folders in `parent` with this prefix and suffix."""
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
            pass  # a living process has locked it, or the file system has no locks
        finally:
            os.close(descriptor)


def _temporary() -> Path:
    """Return the folder for temporary files; sweep it on the first call of this process."""
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
    """Lock a folder while this process lives, and return whether the folder still exists."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return False
    with contextlib.suppress(OSError):  # the file system has no locks
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    if not _is_at(descriptor, folder):
        os.close(descriptor)
        return False
    _locks[folder] = descriptor
    return True


def _is_at(descriptor: int, folder: Path) -> bool:
    """Return whether an opened folder is still the folder with this name."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(folder))
    except FileNotFoundError:
        return False


_PARTIAL = ".partial"


@contextmanager
def partial_folder(out: Path) -> Iterator[Path]:
    """Yield a fresh folder beside `out`, and remove it when the block ends, if it still exists.

    Folders left by killed exports are removed first.

    Args:
        out: the folder that is to be created.
    """
    prefix = f".{out.name}.opsmith-"
    sweep(out.parent, prefix, _PARTIAL)
    with held_folder(out.parent, prefix, _PARTIAL) as folder:
        yield folder
