"""Where built things live, and writing them so that nobody ever sees half a file."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """``$OPSMITH_CACHE``, else the user's cache folder."""
    chosen = os.environ.get("OPSMITH_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "opsmith"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "opsmith"


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
