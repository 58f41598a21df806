"""A translation unit: a source file, and everything that decides its object.

Objects are cached by themselves: a kernel is compiled once for the libraries of all runtimes, and
an adapter is not compiled again when the kernel changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from opsmith.kernels.toolchain.compilers import Compiler, Toolset, compiler_facts
from opsmith.system.files import cache_folder, digest, key_of, write_atomically

INCLUDE = Path(__file__).parents[1] / "include"
SOURCE_SUFFIXES = (".cpp", ".cc", ".cxx", ".c")


@dataclass(frozen=True)
class Generated:
    """Files that are written before compiling, rendered only if something has to be built.

    Attributes:
        key: changes whenever the rendered text would.
        render: returns the text by file name; files with the suffix of a source are compiled.
    """

    key: str
    render: Callable[[], Mapping[str, str]]

    def beside(self, other: Generated) -> Generated:
        """Return the files of both."""
        return Generated(key_of([self.key, other.key]), lambda: {**other.render(), **self.render()})

    @staticmethod
    def of(generated: Mapping[str, str] | Generated | None) -> Generated:
        """Return texts by file name as `Generated`; a `Generated` is returned unchanged."""
        if isinstance(generated, Generated):
            return generated
        texts = dict(generated or {})
        return Generated(key_of(texts), lambda: texts)


@dataclass(frozen=True)
class CMakeLanguage:
    """A language other than C++ that CMake supports, whose compiler calls the host compiler.

    Attributes:
        name: CMake's name of the language.
        architectures: the architectures to compile for, as a CMake list.
        options: the options for every source in the language.
        torch_libraries: see `Device.torch_libraries`.
    """

    name: str
    compiler: Compiler
    architectures: str
    options: tuple[str, ...] = ()
    torch_libraries: tuple[str, ...] = ()

    def facts(self) -> list[object]:
        """Return everything in this that decides the result of a build, as a JSON value."""
        return [self.name, compiler_facts(self.compiler), self.architectures, self.options]


@dataclass(frozen=True)
class Unit:
    """A source file, and everything that decides its object.

    Attributes:
        name: an identifier, used in the names of the cache's folders.
        source: the source file; a bare name refers to a generated file.
        generated: generated files, first on the include path.
        defines: preprocessor definitions, ``NAME`` or ``NAME=value``.
        flags: further compiler flags; they come last and so win.
        language: the language, if it is not C++ and CMake supports it.
        compiler: the compiler and its flags, if CMake does not support the language.
        full_torch: whether it may use PyTorch's C++ interface, not only its C shims.
        explain: explains a compiler's output by a common mistake in the source; see
            `kernel_mistakes.explain`.
    """

    name: str
    source: Path | str
    generated: Generated
    include_dirs: tuple[Path, ...] = ()
    defines: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    language: CMakeLanguage | None = None
    compiler: Compiler | None = None
    full_torch: bool = False
    explain: Callable[[str], str] | None = field(default=None, compare=False, repr=False)

    @property
    def path(self) -> Path:
        """The path of the source; it exists once `write` was called."""
        return self.written / self.source

    @property
    def written(self) -> Path:
        """The folder of the generated files; its name is derived from their content."""
        return cache_folder() / "generated" / f"{self.name}-{self.generated.key[:16]}"

    def write(self) -> list[str]:
        """Write the generated files, and return their names."""
        texts = self.generated.render()
        for name, text in texts.items():
            write_atomically(self.written / name, text)
        return list(texts)

    def folder(self, tools: Toolset) -> Path:
        """Return the folder of the object in the cache."""
        return cache_folder() / "objects" / self.name / self.key(tools)

    def key(self, tools: Toolset) -> str:
        """Return a digest of everything that decides the object except the included files."""
        facts: dict[str, object] = {
            "source": str(self.source),
            "content": digest(self.source) if isinstance(self.source, Path) else "",
            "generated": self.generated.key,
            # INCLUDE is part of the key: another installation of opsmith has other headers.
            "include_dirs": [str(folder) for folder in (INCLUDE, *self.include_dirs)],
            "defines": self.defines,
            "flags": self.flags,
            "language": self.language.facts() if self.language else "",
            "compiler": compiler_facts(self.compiler) if self.compiler else "",
            "tools": tools.facts(full_torch=self.full_torch),
        }
        return key_of(facts)
