"""Load an operator's library, after verifying its digest, and register it with XLA."""

from __future__ import annotations

import ctypes
import hashlib
from pathlib import Path

import jax

from opsmith.targets.exporting.packages import runtime


class XlaLibrary:
    """A library that XLA can call.

    Args:
        path: path of the library.
        sha256: digest of the file that was built.
        symbol: name of the function that XLA calls.
        calls: symbol that counts the kernel's calls.

    Attributes:
        target: name of the function in XLA.

    Raises:
        ArtifactError: the file is missing, was changed after the export, or does not load here.
    """

    def __init__(self, path: Path, sha256: str, symbol: str, calls: str) -> None:
        self._handle = runtime.load(path, sha256)
        self._calls = calls
        # Register two copies of an artifact separately, and one copy that is imported twice once.
        place = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]
        self.target = f"{symbol}__{place}"
        jax.ffi.register_ffi_target(
            self.target, jax.ffi.pycapsule(self._handle[symbol]), platform="cpu"
        )

    def calls(self) -> int:
        """Return how often the kernel ran in this process."""
        return ctypes.c_uint64.in_dll(self._handle, self._calls).value
