"""Where built things live, and writing them so that nobody ever sees half a file."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from opsmith.errors import StorageError

T = TypeVar("T")
_INCLUDED = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)

_FULL = (errno.ENOSPC, errno.EDQUOT)
#: Where so much cannot be written, there is no space.
_LEAST_BYTES = 1 << 16
#: How folders for temporary files end, see `opsmith.kernels.build.scratch`.
SCRATCH = ".scratch"
#: So many characters `tempfile` makes up for a name.
_RANDOM = 8


def cache_folder() -> Path:
    """``$OPSMITH_CACHE``, else the user's cache folder."""
    chosen = os.environ.get("OPSMITH_CACHE")
    try:
        if chosen:
            return Path(chosen).expanduser()
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "opsmith"
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "opsmith"
    except RuntimeError as error:
        where = f"OPSMITH_CACHE is {chosen!r}" if chosen else "HOME is not set"
        raise StorageError(
            f"the cache has no place: {where}, and there is no such home folder. Set OPSMITH_CACHE "
            "to a folder that can be written."
        ) from error


def storage_error(error: OSError, path: Path) -> StorageError:
    """Say which place cannot be written, and which variable chose it.

    Args:
        error: what writing raised.
        path: what was to be written, for errors that name no file.
    """
    if isinstance(error, StorageError):
        return error
    # Of a file that is copied, the second is where it was to go.
    named = error.filename2 or error.filename
    path = Path(os.fsdecode(named) if isinstance(named, str | bytes | os.PathLike) else path)
    why = f"{error.strerror or error}: {path}"
    help_ = "Free some space, or set" if error.errno in _FULL else "Set"
    if path.is_relative_to(cache_folder()):
        what = f"the cache {cache_folder()} cannot be written ({why}). {help_} OPSMITH_CACHE"
    elif path == temporary_folder() or any(part.endswith(SCRATCH) for part in path.parts):
        what = f"temporary files cannot be written ({why}). {help_} TMPDIR"
    else:
        return StorageError(f"{path} cannot be written: {error.strerror or error}")
    return StorageError(f"{what} to a folder that can be written.")


def temporary_folder() -> Path:
    """The folder for temporary files.

    Raises:
        StorageError: none can be written.
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
    """Have a place that cannot be written raise `StorageError`, in a block that writes only.

    Args:
        path: what is written.
    """
    try:
        yield
    except OSError as error:
        raise storage_error(error, path) from error


@contextmanager
def needing_space(path: Path) -> Iterator[None]:
    """Have whatever fails in the block for want of space raise `StorageError`.

    Compilers and PyTorch say it in words of their own, which name no variable.

    Args:
        path: what is written at last; temporary files and the cache are looked at, too.
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
    """What a file says in JSON; `None` where it cannot be read, or holds no such value.

    Args:
        path: the file.
        kind: `list` or `dict`.
    """
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, kind) else None


def source_text(path: Path) -> str:
    """Return the text of a source, and of the files that it includes from beside it."""
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
    """Write `path` under a temporary name and rename it; left alone where it says the same.

    Raises:
        StorageError: it cannot be written.
    """
    with storing(path):
        _write_atomically(path, content)


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
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _temporary(path: Path) -> tuple[int, str]:
    """A fresh file beside `path`, locked while it is written; those that a kill left go."""
    prefix = f".{path.name}."
    for entry in os.scandir(path.parent):
        if entry.name.startswith(prefix) and len(entry.name) == len(prefix) + _RANDOM:
            with contextlib.suppress(OSError), open(entry.path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(entry.path)
    while True:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=prefix)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        # Another process may have taken it for what a kill left.
        if os.path.exists(temporary):
            return handle, temporary
        os.close(handle)


def digest(path: Path) -> str | None:
    """The SHA-256 of a file, `None` where it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def key_of(facts: object) -> str:
    """A name for what `facts` decide, as JSON has them: equal for equal facts, in every process."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]


def once(folder: Path, find: Callable[[], T | None], make: Callable[[], T]) -> T:
    """What `folder` of the cache holds, made first if it does not.

    Several processes may ask for the same at once: one makes it, the others wait.

    Args:
        folder: made where it is not there; it holds the lock, too.
        find: gives what is there and intact, else `None`; quick, and without the lock.
        make: makes it. What it writes appears by renaming, so that `find` sees no half of it.

    Raises:
        StorageError: it cannot be written, or there is no space for what makes it.
    """
    found = find()
    if found is not None:
        return found
    with locked(folder), needing_space(folder):
        # Another process may have made it while this one waited.
        found = find()
        return make() if found is None else found


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes and threads out of a folder of the cache, which is made if need be."""
    from filelock import FileLock

    lock = FileLock(folder / "lock")
    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
