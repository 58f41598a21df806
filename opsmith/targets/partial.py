"""Folders that an artifact is written in before it has its name, and what killed exports leave."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PARTIAL = ".partial"


@contextmanager
def partial_folder(out: Path) -> Iterator[Path]:
    """A fresh folder beside `out`, removed when the block ends, if it is still there then.

    Those of exports that were killed are removed first. The folder is locked while its process
    lives, so that nobody takes it for one of those.

    Args:
        out: the folder that is to be made.
    """
    _clear(out)
    folder, lock = _locked(out)
    try:
        yield folder
    finally:
        os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)


def _locked(out: Path) -> tuple[Path, int]:
    while True:
        made = tempfile.mkdtemp(prefix=f".{out.name}.", suffix=_PARTIAL, dir=out.parent)
        descriptor = os.open(made, os.O_RDONLY)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        # Another export may have removed it before it was locked.
        if os.path.isdir(made):
            return Path(made), descriptor
        os.close(descriptor)


def _clear(out: Path) -> None:
    """Remove the partial folders of `out` that no living process holds."""
    for folder in out.parent.iterdir():
        if not (folder.name.startswith(f".{out.name}.") and folder.name.endswith(_PARTIAL)):
            continue
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            pass  # a living process holds it, or nobody can tell
        finally:
            os.close(descriptor)
