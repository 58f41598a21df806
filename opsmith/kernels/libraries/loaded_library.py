"""A kernel's library, loaded into this process."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from opsmith.errors import BuildError
from opsmith.kernels.codegen.cpp_names import (
    calls_symbol,
    dtypes_symbol,
    register_symbol,
    unregister_symbol,
)
from opsmith.signature.model import Signature


class LibrarySource(Protocol):
    """The properties of its source that a loaded library uses; `KernelSource` implements them."""

    @property
    def signature(self) -> Signature:
        """The operator's signature."""

    @property
    def device(self) -> str:
        """The device type of the kernel."""

    @property
    def what(self) -> str:
        """The operator and the device, for messages."""


@dataclass
class Library:
    """A kernel's library, loaded into this process.

    Attributes:
        source: the source that it was built from.
        path: the file.
    """

    source: LibrarySource
    path: Path
    _handle: ctypes.CDLL = field(init=False, repr=False)

    def __post_init__(self) -> None:
        import torch  # loads PyTorch's libraries, which this library needs

        del torch
        try:
            self._handle = ctypes.CDLL(str(self.path))
        except OSError as error:
            raise BuildError(f"{self.source.what}: {self.path} does not load: {error}") from error

    def register(self) -> None:
        """Make this the operator's kernel for its device, in place of an earlier one.

        Raises:
            BuildError: PyTorch rejects the registration.
        """
        name = register_symbol(self.source.signature, self.source.device)
        if self._handle[name]() != 0:
            raise BuildError(f"{self.source.what}: PyTorch refused to register {self.path}")

    def unregister(self) -> None:
        """Undo the registration, if there is one."""
        name = unregister_symbol(self.source.signature, self.source.device)
        self._handle[name]()

    def calls(self) -> int:
        """Return the number of calls of the kernel in this process."""
        name = calls_symbol(self.source.signature, self.source.device)
        return ctypes.c_uint64.in_dll(self._handle, name).value

    def dtypes(self) -> tuple[str, ...]:
        """Return the generic dtypes that the kernel was compiled for; none if it is not generic."""
        function = self._handle[dtypes_symbol(self.source.signature, self.source.device)]
        function.restype = ctypes.c_char_p
        names = function().decode()
        return tuple(names.split(", ")) if names else ()

    def schema(self) -> str | None:
        """Return the schema that the source itself declares, if it declares one."""
        return None
