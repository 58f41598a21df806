"""Load the files of a package of operators, after verifying that they are the exported files.

Targets that write packages copy this module into them, so it imports only Python's own modules.
"""

from __future__ import annotations

import ctypes
import hashlib
from pathlib import Path

from opsmith.errors import ArtifactError


def require(path: Path, sha256: str) -> None:
    """Verify that a file is the exported one.

    Raises:
        ArtifactError: the file is missing or was changed after the export.
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
    """Load an operator's library.

    Raises:
        ArtifactError: the library is missing, was changed after the export, or does not load here.
    """
    require(path, sha256)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise ArtifactError(f"{path} does not load: {error}") from error
