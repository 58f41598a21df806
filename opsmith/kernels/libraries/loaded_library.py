"""A kernel's library, loaded into this process."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from pathlib import Path

from opsmith.errors import BuildError
from opsmith.kernels.codegen.cpp_names import (
    calls_symbol,
    dtypes_symbol,
    register_symbol,
    unregister_symbol,
)
from opsmith.signature.model import Signature


def calls_in(library: ctypes.CDLL, signature: Signature, device: str) -> int:
    """Return the number of calls of the kernel in this process."""
    return ctypes.c_uint64.in_dll(library, calls_symbol(signature, device)).value


def dtypes_in(library: ctypes.CDLL, signature: Signature, device: str) -> tuple[str, ...]:
    """Return the generic dtypes that the kernel was compiled for; none if it is not generic."""
    function = library[dtypes_symbol(signature, device)]
    function.restype = ctypes.c_char_p
    names = function().decode()
    return tuple(names.split(", ")) if names else ()


@dataclass
class Library:
    """A kernel's library, loaded into this process.

    Attributes:
        what: the operator and the device, for messages.
    """

    signature: Signature
    device: str
    what: str
    path: Path
    _handle: ctypes.CDLL = field(init=False, repr=False)

    def __post_init__(self) -> None:
        import torch  # loads PyTorch's libraries, which this library needs

        del torch
        try:
            self._handle = ctypes.CDLL(str(self.path))
        except OSError as error:
            raise BuildError(f"{self.what}: {self.path} does not load: {error}") from error

    def register(self) -> None:
        """Make this the operator's kernel for its device, in place of an earlier one.

        Raises:
            BuildError: PyTorch rejects the registration.
        """
        self.register_as("")

    def register_as(self, operator: str) -> None:
        """Make this the kernel of another operator of the namespace, with the same schema."""
        name = register_symbol(self.signature, self.device)
        given = (f"{name}_as", operator.encode()) if operator else (name,)
        if self._handle[given[0]](*given[1:]) != 0:
            raise BuildError(f"{self.what}: PyTorch refused to register {self.path}")

    def unregister(self) -> None:
        """Undo the registration, if there is one."""
        name = unregister_symbol(self.signature, self.device)
        self._handle[name]()

    def calls(self) -> int:
        """Return the number of calls of the kernel in this process."""
        return calls_in(self._handle, self.signature, self.device)

    def dtypes(self) -> tuple[str, ...]:
        """Return the generic dtypes that the kernel was compiled for; none if it is not generic."""
        return dtypes_in(self._handle, self.signature, self.device)

    def schema(self) -> str | None:
        """Return the schema that the source itself declares, if it declares one."""
        return None
