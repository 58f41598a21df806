"""C++ or CUDA that registers itself with PyTorch (``api="torch"``).

Such a source has a ``TORCH_LIBRARY`` block, uses ``torch::RegisterOperators``, or defines functions
of a Python module (``PYBIND11_MODULE``). Its functions are registered when it is loaded, and it is
bound to this version of PyTorch. A source that serves several operators is compiled and loaded
once.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from opsmith.errors import BuildError
from opsmith.kernels.languages.cuda import compiled_by_nvcc, require_cuda
from opsmith.kernels.libraries.loaded_library import Library
from opsmith.kernels.source import KernelSource, Language
from opsmith.kernels.toolchain import compilers
from opsmith.kernels.toolchain.recipe import LinkedWith, Recipe
from opsmith.kernels.toolchain.units import INCLUDE, Generated, Unit
from opsmith.signature.model import Signature
from opsmith.system.files import source_text

_BLOCKS = INCLUDE / "opsmith" / "detail" / "torch" / "library.h"
_MODULES = INCLUDE / "opsmith" / "detail" / "torch" / "module.h"
_MODULE = re.compile(r"\bPYBIND11_MODULE\s*\(")
_CUDA_SUFFIX = ".cu"


class TorchLibrary(Language):
    """The language of sources that register themselves with PyTorch."""

    name = "C++ or CUDA that registers itself"
    api = "torch"
    suffixes: tuple[str, ...] = (".cpp", ".cc", ".cxx", ".c", _CUDA_SUFFIX)
    has_entry = False

    def check(self, source: KernelSource) -> None:
        """Accept every source: PyTorch compares the schemas when the library is loaded."""

    def require(self, source: KernelSource, *, torch: bool = True) -> None:
        """Require a C++ compiler, and nvcc for CUDA."""
        if _is_cuda(source):
            require_cuda(source, torch=torch)
        compilers.find_compiler(source.what)

    def needs_python(self, source: KernelSource) -> bool:
        """Return whether the source defines a Python module, which needs Python to load."""
        return is_module(source)

    def unit(self, source: KernelSource) -> Unit:
        """Return the unit of a source, which needs no adapter and exports no kernel symbol."""
        return Unit(
            name=library_name(source),
            source=source.path.resolve(),
            generated=Generated.of(None),
            include_dirs=source.include_dirs,
            defines=(
                *source.device_row.compile_definitions,
                f"OPSMITH_DISPATCH_KEY={source.device_row.dispatch_key}",
            ),
            flags=("-include", str(_MODULES if is_module(source) else _BLOCKS), *source.flags),
            language=compiled_by_nvcc(source) if _is_cuda(source) else None,
            full_torch=True,
        )

    def beside(self, source: KernelSource) -> LinkedWith:
        """Return the source's libraries."""
        return {"include_dirs": (), "defines": (), "link_libraries": source.link_libraries}

    def library(self, source: KernelSource) -> Recipe:
        """Return a recipe whose name is the source file's."""
        return Recipe(
            library_name(source),
            objects=[self.unit(source)],
            torch="full",
            what=f"{source.path.name} ({source.device})",
            **self.beside(source),
        )

    def load(self, source: KernelSource, path: Path) -> Library:
        """Load the library, and register the functions of its Python module, if it has one."""
        library = SelfRegistering(source.signature, source.device, source.what, path)
        _LOADED[path] = library
        problem = library.problem() or library.become_kernel()
        if problem is not None:
            raise BuildError(
                f"{source.what}: {source.path} does not register its functions: {problem}"
            )
        return library


LANGUAGE = TorchLibrary()


def _is_cuda(source: KernelSource) -> bool:
    return source.path.suffix == _CUDA_SUFFIX


def is_module(source: KernelSource) -> bool:
    """Return whether the source registers functions in a Python module."""
    return _MODULE.search(source_text(source.path)) is not None


def library_name(source: KernelSource) -> str:
    """Return the name of a source's library."""
    stem = re.sub(r"\W", "_", source.path.stem)
    place = hashlib.sha256(repr((source.path, source.flags)).encode()).hexdigest()[:8]
    return f"torch_library__{stem}_{place}__{source.device}"


@dataclass
class SelfRegistering(Library):
    """A library that registers its kernels when it is loaded."""

    def register(self) -> None:
        """Do nothing: loading has registered the kernels."""

    def unregister(self) -> None:
        """Do nothing: a registration by a block cannot be undone."""

    def calls(self) -> int:
        """Return 0: the library does not count its calls."""
        return 0

    def dtypes(self) -> tuple[str, ...]:
        """Return no dtypes: the library does not declare any."""
        return ()

    def schema(self) -> str | None:
        """Return the schema that the source defined for the operator, if it did."""
        return self._text("opsmith_torch_library_schema", self.signature.qualname)

    def problem(self) -> str | None:
        """Return the error of a block that failed; `None` if there was none."""
        return self._text("opsmith_torch_library_problem")

    def become_kernel(self) -> str | None:
        """Register the function of a Python module that has the operator's name.

        Returns:
            The reason why it cannot be the kernel; `None` if it is, or if there is no module.
        """
        signature = self.signature
        return self._text("opsmith_torch_module_become_kernel", signature.namespace, signature.name)

    def forget(self, qualname: str) -> None:
        """Remove the definition of an operator that the source made, if it made one."""
        function = getattr(self._handle, "opsmith_torch_library_forget", None)
        if function is not None:
            function(qualname.encode())

    def _text(self, symbol: str, *arguments: str) -> str | None:
        function = getattr(self._handle, symbol, None)
        if function is None:
            return None
        function.restype = ctypes.c_char_p
        text = function(*(argument.encode() for argument in arguments))
        return None if text is None else str(text.decode(errors="replace"))


_LOADED: dict[Path, SelfRegistering] = {}


def forget_definition(qualname: str) -> None:
    """Remove the definitions that loaded sources made of an operator before it was declared."""
    for library in _LOADED.values():
        library.forget(qualname)


_COMMENTS = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\])*")', re.DOTALL)
_BLOCK = re.compile(r"\b(?:STABLE_)?TORCH_LIBRARY(_FRAGMENT)?\s*\(\s*(\w+)\s*,")


def defines_operator(source: Path, signature: Signature) -> bool:
    """Return whether a source with ``api="torch"`` defines the operator, not only implements it.

    The source must have ``TORCH_LIBRARY(ns, …)`` or ``TORCH_LIBRARY_FRAGMENT(ns, …)``, and a
    ``def`` whose text begins with the operator's name. Otherwise, in a process without opsmith,
    other code must define the operator before the library is loaded.
    """
    text = _COMMENTS.sub(lambda match: match[1] or " ", source.read_text(errors="replace"))
    namespaces = {match[2] for match in _BLOCK.finditer(text)}
    name = re.escape(signature.name)
    defined = re.search(
        rf'\bdef\s*\(\s*(?:TORCH_SELECTIVE_\w+\s*\(\s*)?R?"\(?(\w+::)?{name}\b', text
    )
    return signature.namespace in namespaces and defined is not None
