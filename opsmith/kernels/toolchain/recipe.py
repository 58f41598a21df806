"""Build a shared library from sources, cached by everything that decides the result."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypedDict

from opsmith.errors import BuildError
from opsmith.kernels.toolchain import compilers, object_cache, released
from opsmith.kernels.toolchain.audit import audit
from opsmith.kernels.toolchain.cmake import cmake_lists, unit_target
from opsmith.kernels.toolchain.compilers import Toolset, find_toolset
from opsmith.kernels.toolchain.diagnostics import NINJA_STATUS, compile_error, own_words
from opsmith.kernels.toolchain.object_cache import BuiltFile
from opsmith.kernels.toolchain.precompiled import Precompiled, precompiled
from opsmith.kernels.toolchain.units import INCLUDE, SOURCE_SUFFIXES, CMakeLanguage, Generated, Unit
from opsmith.system.files import cache_folder, digest, key_of, locked, needing_space, once
from opsmith.system.progress import run
from opsmith.system.scratch import scratch_folder

_log = logging.getLogger("opsmith")

#: How often a library is compiled whose files are changed meanwhile: an editor saves now and then.
_ATTEMPTS = 3
_LIBRARY_SUFFIX = ".dylib" if platform.system() == "Darwin" else ".so"


class _ChangedError(BuildError):
    """A file was changed while it was compiled."""


class LinkedWith(TypedDict):
    """Names what an adapter needs that is linked with a kernel's object; see `Recipe`."""

    include_dirs: Sequence[Path | str]
    defines: Sequence[str]
    link_libraries: Sequence[str]


@dataclass(frozen=True)
class Recipe:
    """The sources and settings that a shared library is built from.

    Sources are compiled in place, so that messages name the user's files.

    Attributes:
        name: an identifier; the file is ``lib<name>.so``.
        generated: texts by file name, or `Generated`. They are on the include path of `sources`,
            and files with the suffix of a source are compiled too.
        objects: sources with flags of their own, linked first: if several units define the same
            inline function, the first definition is linked.
        defines: preprocessor definitions, ``NAME`` or ``NAME=value``.
        link_libraries: further libraries, by path or by the linker's name.
        flags: further compiler flags; they come last and so win.
        torch: the part of PyTorch that the library may use: ``"stable"`` its C shims, ``"none"``
            nothing (for another runtime), ``"full"`` the C++ interface of this very version.
        what: what is built, for messages; `name` by default.
        once_for: for a library that serves all operators, which a release may bring built: what
            decides it besides its sources; empty for nothing.

    Raises:
        ValueError: `torch` has another value.
    """

    name: str
    sources: Sequence[Path | str] = ()
    generated: Mapping[str, str] | Generated | None = None
    _: KW_ONLY
    objects: Sequence[Unit] = ()
    include_dirs: Sequence[Path | str] = ()
    defines: Sequence[str] = ()
    link_libraries: Sequence[str] = ()
    flags: Sequence[str] = ()
    torch: str = "stable"
    what: str = ""
    once_for: str | None = None

    def __post_init__(self) -> None:
        if self.torch not in ("stable", "none", "full"):
            raise ValueError(f"torch={self.torch!r}; there are 'stable', 'none' and 'full'")
        object.__setattr__(self, "what", self.what or self.name)

    def build(self) -> Path:
        """Compile and link the library, or find it in the cache or in a release of opsmith.

        Objects compiled for another library with the same flags are reused. If several processes
        ask for the same library at once, one builds it and the others wait.

        Raises:
            BuildError: a source does not compile or link (the message is the compiler's), or the
                library needs more of PyTorch than `torch` allows.
            MissingDependencyError: there is no compiler.
        """
        brought = None if self.once_for is None else self._brought()
        if brought is not None:
            return brought
        for _ in range(_ATTEMPTS - 1):
            with contextlib.suppress(_ChangedError):
                return self._built()
        return self._built()

    def find(self) -> Path | None:
        """Return the library if `build` would find it in the cache, else `None`.

        Raises:
            BuildError: a source does not exist.
            MissingDependencyError: there is no compiler.
        """
        found = object_cache.find(self.folder())
        return None if found is None else found.path

    @cached_property
    def tools(self) -> Toolset:
        """The tools that build the library."""
        return find_toolset(self.what)

    @cached_property
    def common(self) -> Unit:
        """The settings that its sources share, as a unit without a source."""
        return Unit(
            name=self.name,
            source="",
            generated=Generated.of(self.generated),
            include_dirs=tuple(Path(folder).resolve() for folder in self.include_dirs),
            defines=tuple(self.defines),
            flags=tuple(self.flags),
            full_torch=self.torch == "full",
        )

    @cached_property
    def given(self) -> tuple[Unit, ...]:
        """The units compiled from files that exist before the build, in link order."""
        own = (replace(self.common, source=Path(source).resolve()) for source in self.sources)
        return (*self.objects, *own)

    @property
    def languages(self) -> list[CMakeLanguage]:
        """The languages of its units other than C++ that CMake supports."""
        return list(
            dict.fromkeys(unit.language for unit in self.given if unit.language is not None)
        )

    def folder(self) -> Path:
        """Return the folder of the library in the cache.

        Raises:
            BuildError: a source does not exist.
            MissingDependencyError: there is no compiler.
        """
        for unit in self.given:
            if isinstance(unit.source, Path) and not unit.source.is_file():
                raise BuildError(f"{self.what}: there is no file {unit.source}")
        return cache_folder() / "libraries" / self.name / self.key()

    def _built(self) -> Path:
        folder = self.folder()
        return once(folder, lambda: object_cache.find(folder), lambda: _build(self, folder)).path

    def _brought(self) -> Path | None:
        """Return the library that a release brings, if there is one, and it loads here."""
        folders = [INCLUDE, *(unit.path.parent for unit in self.given)]
        facts = [[unit.path.name, unit.defines, unit.flags] for unit in self.given]
        links, name = list(map(str, self.link_libraries)), f"lib{self.name}{_LIBRARY_SUFFIX}"
        found = released.find(name, folders, [self.once_for, facts, links], self.tools.compiler)
        with contextlib.suppress(OSError):  # the C library is too old for it
            return found if found is None or ctypes.CDLL(str(found)) else None
        return None

    @property
    def subject(self) -> str:
        """The name of the build for messages, with the user's source files."""
        files = " ".join(str(unit.source) for unit in self.given if isinstance(unit.source, Path))
        return f"{self.what}: {files}" if files else self.what

    def key(self) -> str:
        """Return a digest of everything that decides the result except the included files."""
        units = [*self.given, self.common]
        facts: dict[str, object] = {
            "name": self.name,
            "units": [unit.key(self.tools) for unit in units],
            "link_libraries": [[item, digest(Path(item))] for item in self.link_libraries],
            "torch": self.torch,
            "tools": self.tools.facts(full_torch=self.torch == "full"),
        }
        return key_of(facts)

    def units(self) -> list[Unit]:
        """Write the generated files, and return all units to compile, in link order."""
        generated = [name for name in self.common.write() if name.endswith(SOURCE_SUFFIXES)]
        return [*self.given, *(replace(self.common, source=name) for name in generated)]


def included_by(library: Path) -> list[Path]:
    """Return the files that a library's sources included, without headers of other software.

    Args:
        library: the path that `Recipe.build` returned.
    """
    return [path for path in object_cache.included_by(library) if not path.is_relative_to(INCLUDE)]


def _build(recipe: Recipe, folder: Path) -> BuiltFile:
    """Compile the units that are not in the cache, and link the library."""
    tools = recipe.tools
    units = recipe.units()
    folders = [unit.folder(tools) for unit in units]
    with contextlib.ExitStack() as stack:
        work = stack.enter_context(scratch_folder(recipe.name))
        # On an error, check for a full disk before the folder is removed and its space is free
        # again.
        stack.enter_context(needing_space(work))
        # Lock the folders in the same order in every process, to avoid a deadlock.
        for place in sorted({place for place in folders if object_cache.find(place) is None}):
            stack.enter_context(locked(place))
        known = [object_cache.find(place) for place in folders]
        started = time.time_ns()
        headers = [
            precompiled(unit, tools) if there is None else None
            for unit, there in zip(units, known, strict=True)
        ]
        library = _compile(recipe, units, known, headers, work)
        audit(library, recipe.torch, recipe.subject)
        objects = [
            _store_object(recipe, unit, number, header, work, started) if there is None else there
            for number, (unit, there, header) in enumerate(zip(units, known, headers, strict=True))
        ]
        included = {path: value for part in objects for path, value in part.included.items()}
        file_name = f"lib{recipe.name}{_LIBRARY_SUFFIX}"
        return object_cache.store(folder, file_name, library.read_bytes(), included, recipe.what)


def _compile(
    recipe: Recipe,
    units: Sequence[Unit],
    known: Sequence[BuiltFile | None],
    headers: Sequence[Precompiled | None],
    work: Path,
) -> Path:
    cmake = compilers.executable("cmake", recipe.what)
    ninja = compilers.executable("ninja", recipe.what)
    parts = [
        (
            replace(unit, flags=("-include", str(header.header), *unit.flags)) if header else unit,
            None if there is None else there.path,
        )
        for unit, there, header in zip(units, known, headers, strict=True)
    ]
    lists = cmake_lists(
        recipe.name,
        recipe.tools,
        parts,
        languages=recipe.languages,
        link_libraries=recipe.link_libraries,
        torch=recipe.torch,
    )
    (work / "CMakeLists.txt").write_text(lists)
    build = work / "build"
    # The CMakeLists.txt already contains them, after opsmith's own flags.
    told = {"CXX", "CXXFLAGS", "CFLAGS", "LDFLAGS"}
    told |= {f"{one.name}{what}" for one in recipe.languages for what in ("CXX", "FLAGS")}
    environment = {key: value for key, value in os.environ.items() if key not in told}
    # Messages are shown verbatim, so ask for English without colours.
    environment.update(LC_ALL="C", NINJA_STATUS=NINJA_STATUS, CLICOLOR_FORCE="0")
    title = f"building {recipe.what}"
    command = [cmake, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}", "-S", str(work)]
    configured = run([*command, "-B", str(build)], environment, title)
    if configured.returncode != 0:
        raise BuildError(f"{recipe.subject} could not be configured:\n\n{configured.stdout}")
    jobs = str(min(max(known.count(None), 1), os.cpu_count() or 1))
    built = run([ninja, "-C", str(build), "-j", jobs, "-k", "0"], environment, title)
    if built.returncode != 0:
        mistakes = (unit.explain(built.stdout) for unit in units if unit.explain is not None)
        raise BuildError(
            compile_error(recipe.subject, built.stdout, next(filter(None, mistakes), ""))
        )
    if "warning: " in built.stdout:
        _log.warning("%s:\n%s", recipe.subject, own_words(built.stdout))
    (library,) = build.glob(f"lib*{_LIBRARY_SUFFIX}")
    return library


def _store_object(
    recipe: Recipe, unit: Unit, number: int, header: Precompiled | None, work: Path, started: int
) -> BuiltFile:
    """Store the object compiled from a unit, with the digests of its included files."""
    build = work / "build"
    target = f"CMakeFiles/{unit_target(number)}.dir"
    ninja = compilers.executable("ninja", recipe.what)
    (compiled,) = (build / target).rglob("*.o")
    depends = subprocess.run(
        [ninja, "-C", str(build), "-t", "deps", str(compiled.relative_to(build))],
        capture_output=True,
        text=True,
        check=True,
    )
    files = {
        Path(os.path.normpath(build / line.strip()))
        for line in depends.stdout.splitlines()
        if line.startswith("    ")
    }
    if header is not None:
        files = (files - {header.header}) | set(header.included)
    # The unit's key covers the generated files, and the compiler's version covers its headers.
    others = [unit.language.compiler] if unit.language is not None else []
    included = sorted(
        path
        for path in files
        if not path.is_relative_to(unit.written) and not recipe.tools.owns(path, *others)
    )
    for path in included:
        # A time in the future means a wrong clock, not a change.
        if started < path.stat().st_mtime_ns <= time.time_ns():
            changed = f"{recipe.what}: {path} was changed while it was compiled. Try again."
            raise _ChangedError(changed)
    return object_cache.store(
        unit.folder(recipe.tools),
        f"{Path(unit.source).stem}.o",
        compiled.read_bytes(),
        {str(path): digest(path) for path in included},
        str(unit.path),
    )
