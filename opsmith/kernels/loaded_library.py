"""A kernel's library in this process."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from opsmith.errors import BuildError
from opsmith.kernels.codegen.symbols import (
    calls_symbol,
    dtypes_symbol,
    register_symbol,
    unregister_symbol,
)
from opsmith.signature.model import Signature


class Source(Protocol):
    """What a loaded library needs to know of its source; see `KernelSource`."""

    @property
    def signature(self) -> Signature:
        """The operator's."""

    @property
    def device(self) -> str:
        """The device type of the kernel."""

    @property
    def what(self) -> str:
        """The kernel, for messages."""


@dataclass
class Library:
    """A kernel's library, loaded into this process.

    Attributes:
        source: what it was built from.
        path: the file.
    """

    source: Source
    path: Path
    _handle: ctypes.CDLL = field(init=False, repr=False)

    def __post_init__(self) -> None:
        import torch  # its libraries must be there before this one is loaded

        del torch
        try:
            self._handle = ctypes.CDLL(str(self.path))
        except OSError as error:
            raise BuildError(f"{self.source.what}: {self.path} does not load: {error}") from error

    def register(self) -> None:
        """Make this the operator's kernel for its device, in place of an earlier one.

        Raises:
            BuildError: PyTorch refuses.
        """
        name = register_symbol(self.source.signature, self.source.device)
        if self._handle[name]() != 0:
            raise BuildError(f"{self.source.what}: PyTorch refused to register {self.path}")

    def unregister(self) -> None:
        """Take the registration back; nothing happens where there is none."""
        name = unregister_symbol(self.source.signature, self.source.device)
        self._handle[name]()

    def calls(self) -> int:
        """How often the kernel ran in this process."""
        name = calls_symbol(self.source.signature, self.source.device)
        return ctypes.c_uint64.in_dll(self._handle, name).value

    def dtypes(self) -> tuple[str, ...]:
        """The generic dtypes that the kernel was compiled for; none where it is not generic."""
        function = self._handle[dtypes_symbol(self.source.signature, self.source.device)]
        function.restype = ctypes.c_char_p
        names = function().decode()
        return tuple(names.split(", ")) if names else ()

    def schema(self) -> str | None:
        """The schema that the source itself gives the operator, `None` where it gives none."""
        return None
