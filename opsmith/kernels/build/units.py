"""One source file, and everything that decides the object that it becomes.

An object is a product of its own in the cache: a kernel is compiled once, however many runtimes'
libraries it is linked into, and an adapter is not compiled again when the kernel changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opsmith.kernels.build.files import cache_folder, digest, key_of, write_atomically
from opsmith.kernels.build.toolchain import Compiler
from opsmith.kernels.build.toolset import Toolset, compiler_facts

INCLUDE = Path(__file__).parents[1] / "include"
SOURCE_SUFFIXES = (".cpp", ".cc", ".cxx", ".c")


@dataclass(frozen=True)
class Generated:
    """Files that are written before compiling, rendered only when something has to be built.

    Attributes:
        key: changes whenever the rendered text would.
        render: gives the text by file name; files that end like sources are compiled.
    """

    key: str
    render: Callable[[], Mapping[str, str]]

    def beside(self, other: Generated) -> Generated:
        """Both, as one."""
        return Generated(key_of([self.key, other.key]), lambda: {**other.render(), **self.render()})

    @staticmethod
    def of(generated: Mapping[str, str] | Generated | None) -> Generated:
        """Texts by file name as `Generated`, which is left as it is."""
        if isinstance(generated, Generated):
            return generated
        texts = dict(generated or {})
        return Generated(key_of(texts), lambda: texts)


@dataclass(frozen=True)
class CMakeLanguage:
    """A language beside C++ that CMake knows, compiled by a compiler that calls the host's.

    Attributes:
        name: as CMake has it.
        compiler: its own.
        architectures: what it compiles for, as CMake has them.
        options: for everything in it.
        torch_libraries: see `Device.torch_libraries`.
    """

    name: str
    compiler: Compiler
    architectures: str
    options: tuple[str, ...] = ()
    torch_libraries: tuple[str, ...] = ()

    def facts(self) -> list[Any]:
        """All of this that decides what is built, as JSON takes it."""
        return [self.name, compiler_facts(self.compiler), self.architectures, self.options]


@dataclass(frozen=True)
class Unit:
    """One source file, and what decides the object that it becomes.

    Attributes:
        name: an identifier, by which the cache's folders can be told.
        source: the file; a name alone is one of those that are generated.
        generated: files on the include path, before all others.
        include_dirs: further include folders.
        defines: preprocessor definitions, ``NAME`` or ``NAME=value``.
        flags: further compiler flags; they come last and so win.
        language: its language, where CMake knows it and it is not C++.
        compiler: what compiles it, with the flags that make it do so, where CMake knows neither.
        full_torch: whether it sees PyTorch's C++ interface, not its C shims alone.
        explain: says which of the usual mistakes in the source made a compiler print something;
            see `kernel_mistakes.explain`.
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
        """Where the source is, once `write` was called."""
        return self.written / self.source

    @property
    def written(self) -> Path:
        """The folder of what is generated, whose name stands for its content."""
        return cache_folder() / "generated" / f"{self.name}-{self.generated.key[:16]}"

    def write(self) -> list[str]:
        """Write what is generated; the names of the files."""
        texts = self.generated.render()
        for name, text in texts.items():
            write_atomically(self.written / name, text)
        return list(texts)

    @property
    def include(self) -> list[Path]:
        """The include folders, first to last, but for PyTorch's."""
        return [self.written, INCLUDE, *self.include_dirs]

    def folder(self, tools: Toolset) -> Path:
        """Where the object is kept."""
        return cache_folder() / "objects" / self.name / self.key(tools)

    def key(self, tools: Toolset) -> str:
        """The digest of all of this but the files that the source includes."""
        facts: dict[str, Any] = {
            "source": str(self.source),
            "content": digest(self.source) if isinstance(self.source, Path) else "",
            "generated": self.generated.key,
            # Whose headers, opsmith's own too: another installation's are other files.
            "include_dirs": [str(folder) for folder in (INCLUDE, *self.include_dirs)],
            "defines": self.defines,
            "flags": self.flags,
            "language": self.language.facts() if self.language else "",
            "compiler": compiler_facts(self.compiler) if self.compiler else "",
            "tools": tools.facts(full_torch=self.full_torch),
        }
        return key_of(facts)
