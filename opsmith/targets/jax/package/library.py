"""An operator's library: loaded if it is what was built, and known to XLA under a name."""

from __future__ import annotations

import ctypes
import hashlib
from pathlib import Path

import jax

from opsmith.targets.exporting.packages import runtime


class Library:
    """A library that XLA can call.

    Args:
        path: the file.
        sha256: of the file that was built.
        symbol: the function that XLA calls.
        calls: the symbol that counts the kernel's calls.

    Attributes:
        target: what XLA calls the function.

    Raises:
        ArtifactError: the file is missing, is not what was built, or does not load here.
    """

    def __init__(self, path: Path, sha256: str, symbol: str, calls: str) -> None:
        self._handle = runtime.load(path, sha256)
        self._calls = calls
        # Two copies of an artifact are two functions, and one copy imported twice is one.
        place = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]
        self.target = f"{symbol}__{place}"
        jax.ffi.register_ffi_target(
            self.target, jax.ffi.pycapsule(self._handle[symbol]), platform="cpu"
        )

    def calls(self) -> int:
        """How often the kernel ran in this process."""
        return ctypes.c_uint64.in_dll(self._handle, self._calls).value
