"""Replace ``opsmith.kernels`` in an installed package, where nothing is compiled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsmith.errors import BuildError
from opsmith.kernels.toolchain.devices import (
    DEVICES as DEVICES,
    HOST as HOST,
    Device as Device,
    dispatch_key as dispatch_key,
    find_device as find_device,
    get_device as get_device,
)
from opsmith.signature.model import Signature

if TYPE_CHECKING:
    from opsmith.kernels.libraries.loaded_library import Library


def forget_definition(qualname: str) -> None:
    """Do nothing: no source defines operators here."""
    del qualname


class _Language:
    """The attributes of a language that `NativeKernel` needs."""

    has_entry = True

    def __init__(self, api: str) -> None:
        self.api = api

    def emulated(self, source: KernelSource) -> None:
        """Return `None`: a kernel of another device cannot be compiled for the CPU here."""
        del source


@dataclass(frozen=True)
class KernelSource:
    """A kernel whose library came with the package; its attributes are those of opsmith's class."""

    signature: Signature
    device: str
    path: Path
    language: Any
    strided: bool | tuple[str, ...] = False
    flags: tuple[str, ...] = ()
    function: str = ""
    args: Any = None
    others: Any = None

    @property
    def what(self) -> str:
        """Return the kernel's name for messages."""
        return f"{self.signature.qualname} ({self.device})"

    def shares_library(self, other: KernelSource) -> bool:
        """Return False: each kernel has a library of its own."""
        del other
        return False

    def build(self) -> Path:
        """Return the path of the library.

        Raises:
            BuildError: the package has no library for this kernel.
            MissingDependencyError: none of its libraries runs on this machine.
        """
        from opsmith.kernels.libraries import prebuilt

        found = prebuilt.find(self.path, self.signature.qualname, self.device)
        if found is None and self.language.api == "torch":
            raise BuildError(
                f'{self.what}: {self.path.name} has api="torch", which binds to one PyTorch, so '
                f"no library came with {self.path.parent}. "
                "To compile it, pip install 'opsmith[build]'."
            )
        if found is None:
            raise BuildError(
                f"{self.what}: no library came with {self.path.parent} for {self.path.name} as it "
                "is. To compile it, pip install 'opsmith[build]'."
            )
        return found

    def load(self) -> Library:
        """Load the library into this process; the kernel is not registered yet."""
        from opsmith.kernels.libraries.loaded_library import Library

        return Library(self.signature, self.device, self.what, self.build())


def kernel_source(
    signature: Signature,
    device: str,
    path: Path,
    api: str = "opsmith",
    *,
    asked: str = "",
    **options: Any,
) -> KernelSource:
    """Return a kernel's source; its language has only the `api`."""
    del asked
    return KernelSource(signature, device, path, _Language(api), **options)
