"""In an installed package, in place of ``opsmith.kernels``: nothing is compiled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsmith.errors import BuildError
from opsmith.kernels.build.devices import (
    DEVICES,
    HOST,
    Device,
    dispatch_key,
    find_device,
    get_device,
)
from opsmith.signature.model import Signature

if TYPE_CHECKING:
    from opsmith.kernels.loaded_library import Library

__all__ = [
    "DEVICES",
    "HOST",
    "Device",
    "KernelSource",
    "dispatch_key",
    "find_device",
    "forget_definition",
    "get_device",
    "kernel_source",
]


def forget_definition(qualname: str) -> None:
    """No source defines operators."""
    del qualname


class _Language:
    """What `NativeKernel` asks of a language."""

    has_entry = True

    def __init__(self, api: str) -> None:
        self.api = api

    def emulated(self, source: KernelSource) -> None:
        """Nothing is compiled for the CPU in place of its device."""
        del source


@dataclass(frozen=True)
class KernelSource:
    """A kernel whose library came with the package; its attributes are those of opsmith's."""

    signature: Signature
    device: str
    path: Path
    language: Any
    strided: bool | tuple[str, ...] = False
    flags: tuple[str, ...] = ()
    others: Any = None

    @property
    def what(self) -> str:
        """The kernel, for messages."""
        return f"{self.signature.qualname} ({self.device})"

    def shares_library(self, other: KernelSource) -> bool:
        """Each has its own."""
        del other
        return False

    def build(self) -> Path:
        """The path of the library.

        Raises:
            BuildError: none came for this kernel.
            MissingDependencyError: none of them runs on this machine.
        """
        from opsmith.kernels import prebuilt

        found = prebuilt.find(self.path, self.signature.qualname, self.device)
        if found is None and self.language.api == "torch":
            raise BuildError(
                f'{self.what}: {self.path.name} has api="torch", which binds to one PyTorch, so '
                f"no library came with {self.path.parent}. To compile it, pip install opsmith."
            )
        if found is None:
            raise BuildError(
                f"{self.what}: no library came with {self.path.parent} for {self.path.name} as it "
                "is. To compile it, pip install opsmith."
            )
        return found

    def load(self) -> Library:
        """Load the library into this process; the kernel is not registered yet."""
        from opsmith.kernels.loaded_library import Library

        return Library(self, self.build())


def kernel_source(
    signature: Signature,
    device: str,
    path: Path,
    api: str = "opsmith",
    *,
    asked: str = "",
    **options: Any,
) -> KernelSource:
    """Return a kernel's source; of its language, only the api is known here."""
    del asked
    return KernelSource(signature, device, path, _Language(api), **options)
