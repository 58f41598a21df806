"""Where built things live, and writing them so that nobody ever sees half a file."""

from __future__ import annotations

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

T = TypeVar("T")
_INCLUDED = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def cache_folder() -> Path:
    """``$OPSMITH_CACHE``, else the user's cache folder."""
    chosen = os.environ.get("OPSMITH_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "opsmith"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "opsmith"


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
    """Write `path` under a temporary name and rename it; left alone where it says the same."""
    data = content.encode() if isinstance(content, str) else content
    try:
        if path.read_bytes() == data:
            return
    except OSError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


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
    """
    found = find()
    if found is not None:
        return found
    with locked(folder):
        # Another process may have made it while this one waited.
        found = find()
        return make() if found is None else found


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes and threads out of a folder of the cache, which is made if need be."""
    from filelock import FileLock

    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "lock"):
        yield
