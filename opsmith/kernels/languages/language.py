"""What opsmith asks of a kernel language."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opsmith.kernels.library import KernelSource
    from opsmith.kernels.loaded import Library
    from opsmith.kernels.toolchain import Compiler
    from opsmith.kernels.units import Unit


class Language(ABC):
    """How a kernel's source becomes code.

    A language is one file in this folder, and its line in ``LANGUAGES``.

    Attributes:
        name: for messages.
        api: what its sources are written against; the argument of ``register_kernel``.
        asked: what ``register_kernel`` calls it as `language`, where a file's name does not tell;
            empty where it does.
        suffixes: of its files.
        has_entry: whether the code exports the kernel symbol that every runtime's adapter calls.
            Without it the code registers itself with PyTorch, and runs nowhere else.
        compilers: those that this language alone needs, by name: each finds one for what it is
            needed for, or raises `MissingError`.
        emulates: the device type whose kernels `emulated` brings to the host; empty if it does not.
    """

    name: str
    api: str = "opsmith"
    asked: str = ""
    suffixes: tuple[str, ...]
    has_entry: bool = True
    compilers: Mapping[str, Callable[[str], Compiler]] = MappingProxyType({})
    emulates: str = ""

    def takes(self, path: Path, api: str, asked: str = "") -> bool:
        """Whether a source is in this language."""
        return (api, asked) == (self.api, self.asked) and path.suffix in self.suffixes

    @abstractmethod
    def check(self, source: KernelSource) -> None:
        """Refuse a source that this language cannot serve, when it is registered.

        Raises:
            DeclarationError: naming the parameter or result, and the way round.
        """

    @abstractmethod
    def require(self, source: KernelSource, *, torch: bool = True) -> None:
        """Ask for everything that building a source needs, before anything is compiled.

        Args:
            source: what is to be built.
            torch: whether the library is to use PyTorch.

        Raises:
            MissingError: something is not there; says what, and how to get it.
        """

    def needs_python(self, source: KernelSource) -> bool:
        """Whether the code of a source runs in a process of Python's alone."""
        del source
        return False

    def emulated(self, source: KernelSource) -> KernelSource | None:
        """A source as it is compiled for the host in place of its device; `None` if it is not."""
        del source
        return None

    @abstractmethod
    def unit(self, source: KernelSource) -> Unit:
        """What is compiled of a source, once for the adapters of all runtimes.

        The object that comes of it exports the kernel symbol.
        """

    @abstractmethod
    def beside(self, source: KernelSource) -> dict[str, Any]:
        """What an adapter needs that is linked with the object.

        Returns:
            The arguments ``include_dirs``, ``defines`` and ``link_libraries`` of `Recipe`.
        """

    @abstractmethod
    def library(self, source: KernelSource) -> dict[str, Any]:
        """What the library is made from that registers a kernel with PyTorch.

        Returns:
            All of the arguments of `Recipe`.
        """

    def shipped_with(self, source: KernelSource) -> dict[str, Any]:
        """What else a package says of a library that it carries.

        Returns:
            ``files``: further ones than the source that the library was made of; and, as the
            package's list has it, what limits where the library serves.
        """
        del source
        return {}

    @abstractmethod
    def load(self, source: KernelSource, path: Path) -> Library:
        """Load a built library into this process; the kernel is not registered yet.

        Raises:
            BuildError: it does not load.
        """
