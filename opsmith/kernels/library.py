"""A kernel's source, and building the library that it becomes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from opsmith.errors import DeclarationError
from opsmith.kernels import shipped
from opsmith.kernels.build import Recipe, included_by
from opsmith.kernels.devices import Device, get_device
from opsmith.kernels.loaded import Library
from opsmith.kernels.units import Generated
from opsmith.signature.model import Signature

if TYPE_CHECKING:
    from opsmith.kernels.languages import Language


@dataclass(frozen=True)
class KernelSource:
    """A kernel that is compiled from a file.

    Attributes:
        signature: the operator's.
        device: the device type that it is for, as in ``OPSMITH_KERNEL(ns, op, device, …)``.
        path: the file.
        api: ``"opsmith"``, or ``"torch"`` for a source with its own ``TORCH_LIBRARY`` block.
        strided: whether tensors come as they are: all, none, or the parameters named.
        flags: further compiler flags.
        include_dirs: further include folders.
        link_libraries: further libraries to link.
        asked: the language, where the file's name does not tell it; see `Language.asked`.
        in_place_of: the language to compile it as, where that is not the one it is written in.
        others: gives the sources of the other operators' kernels in the same file, as far as they
            are registered when it is built.

    Raises:
        DeclarationError: there is no such api or parameter, or a C++ kernel cannot take one of the
            operator's parameters.
    """

    signature: Signature
    device: str
    path: Path
    api: str = "opsmith"
    strided: bool | tuple[str, ...] = False
    flags: tuple[str, ...] = ()
    include_dirs: tuple[Path, ...] = ()
    link_libraries: tuple[str, ...] = ()
    asked: str = ""
    in_place_of: Language | None = None
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
    def language(self) -> Language:
        """The language that it is compiled as."""
        if self.in_place_of is not None:
            return self.in_place_of
        from opsmith.kernels.languages import language_of

        return language_of(self.path, self.api, self.signature.qualname, self.asked)

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
            MissingError: something that building needs is not there.
        """
        self._require_same_options()
        there = self._shipped()
        if there is not None:
            return there
        self.language.require(self)
        return Recipe(**self.language.library(self)).build()

    def _shipped(self) -> Path | None:
        return shipped.find(self.path, self.signature.qualname, self.device)

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
            MissingError: something that building needs is not there.
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
            MissingError: something that building needs is not there.
        """
        return self.language.load(self, self.build())


_COMMENTS = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\])*")', re.DOTALL)
_BLOCK = re.compile(r"\b(?:STABLE_)?TORCH_LIBRARY(_FRAGMENT)?\s*\(\s*(\w+)\s*,")


def defines_operator(source: Path, signature: Signature) -> bool:
    """Whether a source with ``api="torch"`` defines the operator, rather than only implements it.

    Looks for ``TORCH_LIBRARY(ns, …)`` or ``TORCH_LIBRARY_FRAGMENT(ns, …)`` and a ``def`` whose text
    begins with the operator's name. Where it is not true, a process without opsmith needs somebody
    else to define the operator before it loads the library.
    """
    text = _COMMENTS.sub(lambda match: match[1] or " ", source.read_text(errors="replace"))
    namespaces = {match[2] for match in _BLOCK.finditer(text)}
    name = re.escape(signature.name)
    defined = re.search(
        rf'\bdef\s*\(\s*(?:TORCH_SELECTIVE_\w+\s*\(\s*)?R?"\(?(\w+::)?{name}\b', text
    )
    return signature.namespace in namespaces and defined is not None
