"""What a package of operators loads its files with: they must be what was exported.

Targets that write packages put this module into them, so it imports nothing but Python.
"""

from __future__ import annotations

import ctypes
import hashlib
from pathlib import Path

from opsmith.errors import ArtifactError


def require(path: Path, sha256: str) -> None:
    """Ask that a file is what was exported.

    Raises:
        ArtifactError: it is missing, or is something else.
    """
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {error}") from error
    if found != sha256:
        raise ArtifactError(
            f"{path} is not the file that was exported: its SHA-256 is {found}, expected "
            f"{sha256}. Export again."
        )


def load(path: Path, sha256: str) -> ctypes.CDLL:
    """An operator's library.

    Raises:
        ArtifactError: it is missing, is not what was exported, or does not load here.
    """
    require(path, sha256)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise ArtifactError(f"{path} does not load: {error}") from error
