"""Find the folders for built files, and write files atomically."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from opsmith.errors import StorageError
from opsmith.system.stopwatch import spending

T = TypeVar("T")
_INCLUDED = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)

_FULL = (errno.ENOSPC, errno.EDQUOT)
#: A folder that has no room for so many bytes counts as full.
_LEAST_BYTES = 1 << 16
#: The suffix of folders for temporary files, see `opsmith.system.scratch`.
SCRATCH = ".scratch"
#: The number of random characters in the names that `tempfile` makes.
_RANDOM = 8


def cache_folder() -> Path:
    """Return ``$OPSMITH_CACHE``, else the user's cache folder."""
    chosen = os.environ.get("OPSMITH_CACHE")
    try:
        if chosen:
            return Path(chosen).expanduser().absolute()  # compilers work in other folders
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "opsmith"
    except RuntimeError as error:
        where = f"OPSMITH_CACHE is {chosen!r}" if chosen else "HOME is not set"
        raise StorageError(
            f"the folder of the cache is unknown: {where}, and the home folder cannot be found. "
            "Set OPSMITH_CACHE to a folder that can be written."
        ) from error


def storage_error(error: OSError, path: Path) -> StorageError:
    """Return an error that names the path that cannot be written, and the variable that chose it.

    Args:
        error: the error that writing raised.
        path: the path to write, for errors that name no file.
    """
    if isinstance(error, StorageError):
        return error
    # For an error while copying, `filename2` is the destination.
    named = error.filename2 or error.filename
    path = Path(os.fsdecode(named) if isinstance(named, str | bytes | os.PathLike) else path)
    why = f"{error.strerror or error}: {path}"
    help_ = "Free some space, or set" if error.errno in _FULL else "Set"
    # The folder that cannot be made may be the parent of the cache.
    missing = cache_folder().is_relative_to(path) and not os.path.exists(path)
    if missing or path.is_relative_to(cache_folder()):
        what = f"the cache {cache_folder()} cannot be written ({why}). {help_} OPSMITH_CACHE"
    elif path == temporary_folder() or any(part.endswith(SCRATCH) for part in path.parts):
        what = f"temporary files cannot be written ({why}). {help_} TMPDIR"
    else:
        return StorageError(f"{path} cannot be written: {error.strerror or error}")
    return StorageError(f"{what} to a folder that can be written.")


def temporary_folder() -> Path:
    """Return the folder for temporary files.

    Raises:
        StorageError: no such folder can be written.
    """
    try:
        return Path(tempfile.gettempdir())
    except OSError as error:
        raise StorageError(
            f"there is no folder for temporary files ({error.strerror}). Set TMPDIR to a folder "
            "that can be written."
        ) from error


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """Raise `StorageError` in place of `OSError`, in a block that only writes.

    Args:
        path: the path that is written.
    """
    try:
        yield
    except OSError as error:
        raise storage_error(error, path) from error


@contextmanager
def needing_space(path: Path) -> Iterator[None]:
    """Raise `StorageError` for an error in the block that is due to a full disk.

    Compilers and PyTorch report a full disk in other words, and do not name the variable to set.

    Args:
        path: the final path that is written; temporary files and the cache are looked at, too.
    """
    try:
        yield
    except StorageError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _FULL:
            raise storage_error(error, path) from error
        why = os.strerror(errno.ENOSPC)
        places = [temporary_folder(), cache_folder(), path.parent]
        full = next(filter(_is_full, places), places[0] if why in str(error) else None)
        if full is None:
            raise
        raise storage_error(OSError(errno.ENOSPC, why, str(full)), full) from error


def _is_full(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_LEAST_BYTES))
            file.flush()
    except OSError as error:
        return error.errno in _FULL
    return False


def read_json(path: Path, kind: type[T]) -> T | None:
    """Return the JSON value in a file; `None` if it cannot be read or is of another type.

    Args:
        kind: the expected type, `list` or `dict`.
    """
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, kind) else None


def source_text(path: Path) -> str:
    """Return the text of a source, and of the files that it includes by paths relative to it."""
    texts: dict[Path, str] = {}
    waiting = [path.resolve()]
    while waiting:
        file = waiting.pop()
        if file in texts:
            continue
        texts[file] = file.read_text(errors="replace")
        found = (file.parent / name for name in _INCLUDED.findall(texts[file]))
        waiting += [one.resolve() for one in found if one.is_file()]
    return "\n".join(texts.values())


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file under a temporary name and rename it; leave a file with that content alone.

    Raises:
        StorageError: the file cannot be written.
    """
    with storing(path):
        _write_atomically(path, content)


def write_output(path: Path, content: str | bytes) -> None:
    """Write a file that a user named: all of it, or, where it cannot be written, none.

    Raises:
        OSError: the file cannot be written; `filename` is its path.
    """
    if path.exists() and not path.is_file():  # a terminal or a pipe
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return
    path = path.resolve()
    try:
        _write_atomically(path, content)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _write_atomically(path: Path, content: str | bytes) -> None:
    data = content.encode() if isinstance(content, str) else content
    try:
        if path.read_bytes() == data:
            return
    except OSError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = _temporary(path)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)  # while it is locked, or another process may delete it
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _temporary(path: Path) -> tuple[int, str]:
    """Create a locked temporary file beside `path`; delete those of killed processes."""
    prefix = f".{path.name}.opsmith-"
    for entry in os.scandir(path.parent):
        if entry.name.startswith(prefix) and len(entry.name) == len(prefix) + _RANDOM:
            with contextlib.suppress(OSError), open(entry.path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(entry.path)
    while True:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=prefix)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        # Another process may have deleted the file before it was locked.
        if os.path.exists(temporary):
            return handle, temporary
        os.close(handle)


def digest(path: Path) -> str | None:
    """Return the SHA-256 of a file; `None` if it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def key_of(facts: object) -> str:
    """Return a hash of `facts` in JSON; equal facts have equal hashes in every process."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]


def once(folder: Path, find: Callable[[], T | None], make: Callable[[], T]) -> T:
    """Return a cached value; make it if the cache has none.

    If several processes ask for the same value at once, one makes it and the others wait.

    Args:
        folder: the folder of the value and of its lock; created if need be.
        find: returns the value if it is cached and intact, else `None`. It is called without the
            lock, so it must be quick.
        make: makes the value. It must rename finished files into place, so that `find` never sees a
            partial file.

    Raises:
        StorageError: the folder cannot be written, or the disk is full.
    """
    found = find()
    if found is not None:
        return found
    with locked(folder), needing_space(folder):
        # Another process may have made it while this one waited for the lock.
        found = find()
        return make() if found is None else found


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder of the cache against other processes and threads; create it if need be."""
    from filelock import FileLock

    lock = FileLock(folder / "lock")
    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with spending("waiting"):
            lock.acquire()
    try:
        yield
    finally:
        lock.release()
