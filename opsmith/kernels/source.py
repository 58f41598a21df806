"""The source of a kernel, the interface of kernel languages, and building a kernel's library."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from opsmith.errors import DeclarationError
from opsmith.kernels.libraries import prebuilt
from opsmith.kernels.libraries.loaded_library import Library
from opsmith.kernels.toolchain.compilers import Compiler, find_toolset
from opsmith.kernels.toolchain.devices import Device, get_device
from opsmith.kernels.toolchain.precompiled import precompiled
from opsmith.kernels.toolchain.recipe import LinkedWith, Recipe, included_by
from opsmith.kernels.toolchain.units import Generated, Unit
from opsmith.signature.model import Signature
from opsmith.system.products import import_product
from opsmith.untyped import Json


class Language(ABC):
    """The interface of a kernel language: how a source becomes code.

    A language is an instance, by the name `LANGUAGE` in a file of ``languages/``, or an entry point
    of another package in the group ``opsmith.languages``.

    Attributes:
        name: the name of the language, for messages.
        api: the interface that its sources use; the argument of ``register_kernel``.
        asked: the `language` that ``register_kernel`` must name, if the suffix of a file does not
            decide it; else empty.
        compiled_elsewhere: whether a source is machine code already, which no check can compile.
        has_entry: whether the code exports the kernel symbol that every runtime's adapter calls.
            Without the symbol, the code registers itself with PyTorch, and runs nowhere else.
        compilers: the compilers that only this language needs, by name: each function returns a
            compiler, given what it is needed for, or raises `MissingDependencyError`.
        emulates: the device type whose kernels `emulated` brings to the host; empty if there is
            none. The folder ``languages/emulated_<device>`` does it.
    """

    name: str
    api: str = "opsmith"
    asked: str = ""
    suffixes: tuple[str, ...]
    compiled_elsewhere: bool = False
    has_entry: bool = True
    compilers: Mapping[str, Callable[[str], Compiler]] = MappingProxyType({})
    emulates: str = ""

    def takes(self, path: Path, api: str, asked: str = "") -> bool:
        """Return whether a source is in this language."""
        return (api, asked) == (self.api, self.asked) and path.suffix in self.suffixes

    @abstractmethod
    def check(self, source: KernelSource) -> None:
        """Refuse a source that this language cannot serve, when it is registered.

        Raises:
            DeclarationError: the message names the parameter or result, and a remedy.
        """

    @abstractmethod
    def require(self, source: KernelSource, *, torch: bool = True) -> None:
        """Require everything that building a source needs, before anything is compiled.

        Args:
            torch: whether the library is to use PyTorch.

        Raises:
            MissingDependencyError: something is missing; the message says what, and how to get it.
        """

    def needs_python(self, source: KernelSource) -> bool:
        """Return whether the code of a source can only run in a Python process."""
        del source
        return False

    def emulated(self, source: KernelSource) -> KernelSource | None:
        """Return a source to compile for the host instead, if its device can be emulated."""
        if not self.emulates:
            return None
        module = f"opsmith.kernels.languages.emulated_{self.emulates}"
        translated: KernelSource = import_product(module, source.what).emulated(source)
        return translated

    @abstractmethod
    def unit(self, source: KernelSource) -> Unit:
        """Return the unit of a source, which is compiled once for the adapters of all runtimes.

        Its object exports the kernel symbol.
        """

    @abstractmethod
    def beside(self, source: KernelSource) -> LinkedWith:
        """Return what an adapter needs that is linked with the object."""

    @abstractmethod
    def library(self, source: KernelSource) -> Recipe:
        """Return the recipe of the library that registers a kernel with PyTorch."""

    def needs_beside(self, source: KernelSource) -> tuple[Path, ...]:
        """Return the files that a library of a source loads from its own folder when it is called.

        Where there are none, the library loads them from where they were when it was built.
        """
        del source
        return ()

    def shipped_with(self, source: KernelSource) -> dict[str, Json]:
        """Return what a package records of a library, besides its source.

        Returns:
            ``files``: further files that the library was built from; and entries for the package's
            list that limit where the library may be used.
        """
        del source
        return {}

    @abstractmethod
    def load(self, source: KernelSource, path: Path) -> Library:
        """Load a built library into this process, without registering the kernel.

        Raises:
            BuildError: the library does not load.
        """


@dataclass(frozen=True)
class KernelSource:
    """A kernel that is compiled from a file.

    Attributes:
        device: the device type of the kernel, as in ``OPSMITH_KERNEL(ns, op, device, …)``.
        strided: whether tensors may have any strides: all, none, or the named parameters.
        function: the function of a library that was compiled elsewhere; else empty.
        args: what that function takes, in order: names of the declaration.
        variant: the name of the variant of the kernel, ``"cpu[TILE=8]"``, that is none of its
            package; else empty.
        others: returns the sources of the other operators' kernels in the same file, as far as they
            are registered when the file is built.

    Raises:
        DeclarationError: `strided` names no tensor argument, or the language does not support one
            of the operator's parameters.
    """

    signature: Signature
    device: str
    path: Path
    language: Language
    strided: bool | tuple[str, ...] = False
    flags: tuple[str, ...] = ()
    include_dirs: tuple[Path, ...] = ()
    link_libraries: tuple[str, ...] = ()
    function: str = ""
    args: tuple[str, ...] | None = None
    variant: str = ""
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
        """The properties of its device type."""
        return get_device(self.device, self.what)

    @property
    def what(self) -> str:
        """The operator and the device, for messages."""
        return f"{self.signature.qualname} ({self.variant or self.device})"

    @property
    def signatures(self) -> list[Signature]:
        """The signatures of all operators with kernels in the file, sorted by name."""
        others = [other.signature for other in self.others()]
        # Operators of the same name in different namespaces would collide on one header file.
        others = [other for other in others if other.name != self.signature.name]
        return sorted([self.signature, *others], key=lambda signature: signature.qualname)

    def shares_library(self, other: KernelSource) -> bool:
        """Return whether one library holds both kernels, as when they register themselves.

        The kernels may differ in `strided`, which does not affect the library.
        """
        if self.language.has_entry:
            return False
        return (self.path, self.device, self.api) == (other.path, other.device, other.api)

    def _require_same_options(self) -> None:
        """Refuse different compiler options for operators whose kernels share a library."""
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
        """Return the library that registers this kernel with PyTorch; build it if need be.

        The library in an installed package is used as long as its source is the same.

        Raises:
            BuildError: the source does not compile, or uses PyTorch's C++ interface.
            DeclarationError: another operator's kernel in the same library has other options.
            MissingDependencyError: a program or library that building needs is missing.
        """
        self._require_same_options()
        there = self._shipped()
        if there is not None:
            return there
        self.language.require(self)
        return self.language.library(self).build()

    def _shipped(self) -> Path | None:
        if self.variant:
            return None
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
        """Build a library of the kernel and another runtime's adapter, and return its path.

        The kernel is compiled once for all runtimes.

        Args:
            name: see `Recipe`.
            generated: the adapter, and the files that it includes.
            torch: see `Recipe`.
            what: see `Recipe`.
            include_dirs: further include folders for the adapter.
            defines: further preprocessor definitions for the adapter.
            flags: compiler flags for the adapter, which does not get the kernel's flags.

        Raises:
            BuildError: the library does not compile, or uses more of PyTorch than it may.
            MissingDependencyError: a program or library that building needs is missing.
        """
        self.language.require(self, torch=torch != "none")
        beside = self.language.beside(self)
        return Recipe(
            name,
            generated=generated,
            objects=[self.language.unit(self)],
            include_dirs=[*include_dirs, *beside["include_dirs"]],
            defines=[*beside["defines"], *defines],
            link_libraries=beside["link_libraries"],
            flags=flags,
            torch=torch,
            what=what,
        ).build()

    def expect_edits(self) -> None:
        """Precompile what a source in C++ includes first: it will be compiled again and again."""
        if self.language.name == "C++":
            precompiled(self.language.unit(self), find_toolset(self.what), after=0)

    def built(self) -> Path | None:
        """Return the library that `build` would find without compiling, else `None`."""
        return self._shipped() or self.language.library(self).find()

    def files(self) -> list[Path]:
        """Return the source and the files of the user that it included in the last build."""
        library = self.language.library(self).find()
        return [self.path, *(included_by(library) if library is not None else ())]

    def load(self) -> Library:
        """Build the library and load it into this process, without registering the kernel.

        Raises:
            BuildError: see `build`; or the library does not load, and the message has the loader's
                error.
            MissingDependencyError: a program or library that building needs is missing.
        """
        return self.language.load(self, self.build())
