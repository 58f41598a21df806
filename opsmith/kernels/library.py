"""A kernel's source, and the library that it becomes."""

from __future__ import annotations

import ctypes
import hashlib
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from opsmith.errors import BuildError, DeclarationError
from opsmith.kernels.argument_struct import require_supported
from opsmith.kernels.build import Generated, build_library
from opsmith.kernels.symbols import (
    calls_symbol,
    dtypes_symbol,
    register_symbol,
    unregister_symbol,
)
from opsmith.kernels.version import version
from opsmith.signature.model import Signature


@dataclass(frozen=True)
class KernelSource:
    """A kernel that is compiled from a file.

    Attributes:
        signature: the operator's.
        device: the device type that it is for, as in ``OPSMITH_KERNEL(ns, op, device, …)``.
        path: the file; ``.cu`` is compiled by nvcc.
        api: ``"opsmith"``, or ``"torch"`` for a source with its own ``TORCH_LIBRARY`` block.
        strided: whether tensors come as they are: all, none, or the parameters named.
        flags: further compiler flags.
        include_dirs: further include folders.
        link_libraries: further libraries to link.

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

    def __post_init__(self) -> None:
        name = self.signature.qualname
        if self.api not in ("opsmith", "torch"):
            raise DeclarationError(f"{name}: api={self.api!r}; there are 'opsmith' and 'torch'")
        tensors = [parameter.name for parameter in self.signature.tensors]
        for parameter in () if isinstance(self.strided, bool) else self.strided:
            if parameter not in tensors:
                raise DeclarationError(
                    f"{name}: strided names {parameter!r}, which is not a tensor argument; "
                    f"there are {', '.join(tensors) or 'none'}"
                )
        if self.api == "opsmith":
            require_supported(self.signature)

    @property
    def what(self) -> str:
        """The kernel, for messages."""
        return f"{self.signature.qualname} ({self.device})"

    def build(self) -> Path:
        """The path of the library that registers this kernel with PyTorch.

        Raises:
            BuildError: the source does not compile, or uses PyTorch's C++ interface.
            MissingError: there is no compiler.
        """
        name = f"{self.signature.namespace}__{self.signature.name}__{self.device}"
        defines = () if self.device != "cuda" else ("USE_CUDA",)
        return build_library(
            name,
            [self.path],
            self.generated() if self.api == "opsmith" else None,
            include_dirs=self.include_dirs,
            defines=defines,
            link_libraries=self.link_libraries,
            flags=self.flags,
            torch="stable" if self.api == "opsmith" else "full",
            cuda=self.path.suffix == ".cu",
            what=self.what,
        )

    def generated(self) -> Generated:
        """The argument header, the checks and the PyTorch adapter."""

        def render() -> dict[str, str]:
            from opsmith.kernels import adapters

            files = adapters.kernel_files(self.signature)
            adapter = adapters.torch_adapter(self.signature, self.device, self.strided)
            return {**files, f"{self.signature.name}_torch_{self.device}.cpp": adapter}

        return Generated(generated_key(self.signature, self.device, self.strided), render)

    def load(self) -> Library:
        """Build, and load into this process; the kernel is not registered yet.

        Raises:
            BuildError: as `build`; or the library does not load, in the loader's words.
            MissingError: there is no compiler.
        """
        return Library(self, self.build())


@cache
def _generator_key() -> str:
    """The digest of whatever writes generated files."""
    folder = Path(__file__).parent
    files = sorted([*folder.glob("*.py"), *(folder / "templates").glob("*.j2")])
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def generated_key(signature: Signature, *more: object) -> str:
    """A digest that changes whenever what is generated from `signature` would.

    Args:
        signature: the operator's.
        more: whatever else the generated text depends on, by its ``repr``.
    """
    facts = [
        version(),
        _generator_key(),
        signature.qualname,
        repr(signature.parameters),
        repr(signature.results),
        repr(signature.data_dependent),
        *map(repr, more),
    ]
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()


@dataclass
class Library:
    """A kernel's library, loaded into this process.

    Attributes:
        source: what it was built from.
        path: the file.
    """

    source: KernelSource
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

        A source with ``api="torch"`` registers itself when it is loaded.

        Raises:
            BuildError: PyTorch refuses.
        """
        if self.source.api != "opsmith":
            return
        name = register_symbol(self.source.signature, self.source.device)
        if self._handle[name]() != 0:
            raise BuildError(f"{self.source.what}: PyTorch refused to register {self.path}")

    def unregister(self) -> None:
        """Take the registration back; nothing happens where there is none."""
        if self.source.api == "opsmith":
            name = unregister_symbol(self.source.signature, self.source.device)
            self._handle[name]()

    def calls(self) -> int:
        """How often the kernel ran in this process; 0 always for ``api="torch"``."""
        if self.source.api != "opsmith":
            return 0
        name = calls_symbol(self.source.signature, self.source.device)
        return ctypes.c_uint64.in_dll(self._handle, name).value

    def dtypes(self) -> tuple[str, ...]:
        """The generic dtypes that the kernel was compiled for; none where it is not generic."""
        if self.source.api != "opsmith":
            return ()
        function = self._handle[dtypes_symbol(self.source.signature, self.source.device)]
        function.restype = ctypes.c_char_p
        names = function().decode()
        return tuple(names.split(", ")) if names else ()


_COMMENTS = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\])*")', re.DOTALL)
_BLOCK = re.compile(r"\b(?:STABLE_)?TORCH_LIBRARY(_FRAGMENT)?\s*\(\s*(\w+)\s*,")


def defines_operator(source: Path, signature: Signature) -> bool:
    """Whether a source with ``api="torch"`` defines the operator, rather than only implements it.

    Looks for ``TORCH_LIBRARY(ns, …)`` or ``TORCH_LIBRARY_FRAGMENT(ns, …)`` and a ``def`` whose text
    begins with the operator's name. PyTorch admits one definition: where this is true, load the
    source's library first, and define nothing.
    """
    text = _COMMENTS.sub(lambda match: match[1] or " ", source.read_text(errors="replace"))
    namespaces = {match[2] for match in _BLOCK.finditer(text)}
    name = re.escape(signature.name)
    defined = re.search(
        rf'\bdef\s*\(\s*(?:TORCH_SELECTIVE_\w+\s*\(\s*)?R?"\(?(\w+::)?{name}\b', text
    )
    return signature.namespace in namespaces and defined is not None
