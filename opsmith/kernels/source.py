"""A kernel's source, the contract of the language that it is in, and building its library."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from opsmith.errors import DeclarationError
from opsmith.kernels import prebuilt
from opsmith.kernels.build.devices import Device, get_device
from opsmith.kernels.build.recipe import Recipe, included_by
from opsmith.kernels.build.toolchain import Compiler
from opsmith.kernels.build.units import Generated, Unit
from opsmith.kernels.loaded_library import Library
from opsmith.signature.model import Signature


class Language(ABC):
    """How a kernel's source becomes code.

    A language is one file in ``languages/``, and its line in ``language_registry.LANGUAGES``.

    Attributes:
        name: for messages.
        api: what its sources are written against; the argument of ``register_kernel``.
        asked: the name that ``register_kernel`` gives as `language`, where a file's name does not
            tell the language; else empty.
        suffixes: of its files.
        has_entry: whether the code exports the kernel symbol that every runtime's adapter calls.
            Without it the code registers itself with PyTorch, and runs nowhere else.
        compilers: those that this language alone needs, by name: each finds one for what it is
            needed for, or raises `MissingDependencyError`.
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
            MissingDependencyError: something is not there; says what, and how to get it.
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


@dataclass(frozen=True)
class KernelSource:
    """A kernel that is compiled from a file.

    Attributes:
        signature: the operator's.
        device: the device type that it is for, as in ``OPSMITH_KERNEL(ns, op, device, …)``.
        path: the file.
        language: the language that it is compiled as.
        strided: whether tensors come as they are: all, none, or the parameters named.
        flags: further compiler flags.
        include_dirs: further include folders.
        link_libraries: further libraries to link.
        others: gives the sources of the other operators' kernels in the same file, as far as they
            are registered when it is built.

    Raises:
        DeclarationError: there is no such parameter, or a C++ kernel cannot take one of the
            operator's parameters.
    """

    signature: Signature
    device: str
    path: Path
    language: Language
    strided: bool | tuple[str, ...] = False
    flags: tuple[str, ...] = ()
    include_dirs: tuple[Path, ...] = ()
    link_libraries: tuple[str, ...] = ()
    others: Callable[[], Sequence[KernelSource]] = field(default=tuple, compare=False, repr=False)

    def __post_init__(self) -> None:
        name = self.signature.qualname
        tensors = [parameter.name for parameter in self.signature.tensors]
        for parameter in () if isinstance(self.strided, bool) else self.strided:
            if parameter not in tensors:
                raise DeclarationError(
                    f"{name}: strided names {parameter!r}, which is not a tensor argument; "
                    f"there are {', '.join(tensors) or 'none'}"
                )
        self.language.check(self)

    @property
    def api(self) -> str:
        """``"opsmith"``, or ``"torch"`` for a source that registers itself."""
        return self.language.api

    @property
    def device_row(self) -> Device:
        """What is known of its device type."""
        return get_device(self.device, self.what)

    @property
    def what(self) -> str:
        """The kernel, for messages."""
        return f"{self.signature.qualname} ({self.device})"

    @property
    def signatures(self) -> list[Signature]:
        """The signatures of all operators with kernels in the file, in the same order for each."""
        others = [other.signature for other in self.others()]
        # Two operators of one name, in two namespaces, would have one header.
        others = [other for other in others if other.name != self.signature.name]
        return sorted([self.signature, *others], key=lambda signature: signature.qualname)

    def shares_library(self, other: KernelSource) -> bool:
        """Return whether one library holds both kernels: those of a file that registers itself.

        How tensors arrive (`strided`) is no matter of the library's, and may differ.
        """
        if self.language.has_entry:
            return False
        return (self.path, self.device, self.api) == (other.path, other.device, other.api)

    def _require_same_options(self) -> None:
        """Refuse other compiler options for an operator whose kernel the same library holds."""
        for other in filter(self.shares_library, self.others()):
            for option in ("flags", "include_dirs", "link_libraries"):
                ours, theirs = getattr(self, option), getattr(other, option)
                if ours != theirs:
                    raise DeclarationError(
                        f"{self.what}: loading {self.path} registers the kernels of all its "
                        f"operators, so that they have the same {option}, but they are {ours!r} "
                        f"for {self.signature.qualname} and {theirs!r} for "
                        f"{other.signature.qualname}. Register both with the same {option}, or "
                        "give each operator a file of its own."
                    )

    def build(self) -> Path:
        """The path of the library that registers this kernel with PyTorch.

        The one that came with an installed package is taken as long as its source is the same.

        Raises:
            BuildError: the source does not compile, or uses PyTorch's C++ interface.
            DeclarationError: another operator's kernel in the same library has other options.
            MissingDependencyError: something that building needs is not there.
        """
        self._require_same_options()
        there = self._shipped()
        if there is not None:
            return there
        self.language.require(self)
        return Recipe(**self.language.library(self)).build()

    def _shipped(self) -> Path | None:
        return prebuilt.find(self.path, self.signature.qualname, self.device)

    def build_beside(
        self,
        name: str,
        generated: Generated,
        *,
        torch: str,
        what: str,
        include_dirs: Sequence[Path] = (),
        defines: Sequence[str] = (),
        flags: Sequence[str] = (),
    ) -> Path:
        """The path of a library of the kernel and another runtime's adapter.

        The kernel is compiled once for all runtimes.

        Args:
            name: see `Recipe`.
            generated: the adapter, and what it includes.
            torch: see `Recipe`.
            what: see `Recipe`.
            include_dirs: further include folders of the adapter's.
            defines: further preprocessor definitions of the adapter's.
            flags: compiler flags of the adapter's; it takes none of the kernel's.

        Raises:
            BuildError: it does not compile, or uses more of PyTorch than it may.
            MissingDependencyError: something that building needs is not there.
        """
        self.language.require(self, torch=torch != "none")
        beside = self.language.beside(self)
        beside["include_dirs"] = [*include_dirs, *beside["include_dirs"]]
        beside["defines"] = [*beside["defines"], *defines]
        return Recipe(
            name,
            generated=generated,
            objects=[self.language.unit(self)],
            flags=flags,
            torch=torch,
            what=what,
            **beside,
        ).build()

    def built(self) -> Path | None:
        """What `build` would find without compiling, `None` where it would compile."""
        return self._shipped() or Recipe(**self.language.library(self)).find()

    def files(self) -> list[Path]:
        """The source, and what it included when it was built last, of what is the user's."""
        library = Recipe(**self.language.library(self)).find()
        return [self.path, *(included_by(library) if library is not None else ())]

    def load(self) -> Library:
        """Build, and load into this process; the kernel is not registered yet.

        Raises:
            BuildError: as `build`; or the library does not load, in the loader's words.
            MissingDependencyError: something that building needs is not there.
        """
        return self.language.load(self, self.build())
