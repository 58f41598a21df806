"""From sources to a shared library, cached by everything that decides the result."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opsmith.errors import BuildError
from opsmith.kernels import machine, toolchain
from opsmith.kernels.audit import audit
from opsmith.kernels.cmake import TARGET_VERSION, cmake_lists
from opsmith.kernels.files import cache_folder, digest, key_of, once, write_atomically
from opsmith.kernels.nvcc import cuda_architectures, find_nvcc
from opsmith.kernels.progress import run
from opsmith.kernels.toolchain import Compiler
from opsmith.kernels.torch_paths import TorchPaths, torch_paths
from opsmith.kernels.version import version

_log = logging.getLogger("opsmith")

INCLUDE = Path(__file__).parent / "include"
_SOURCE_SUFFIXES = (".cpp", ".cc", ".cxx", ".c", ".cu")
_LIBRARY_SUFFIX = ".dylib" if platform.system() == "Darwin" else ".so"


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


@dataclass(frozen=True)
class Recipe:
    """Everything that goes into one library; see `build_library` for the fields."""

    name: str
    sources: tuple[Path, ...]
    generated: Generated
    include_dirs: tuple[Path, ...]
    defines: tuple[str, ...]
    link_libraries: tuple[str, ...]
    flags: tuple[str, ...]
    torch: str
    what: str
    compiler: Compiler
    nvcc: Compiler | None
    architecture: str
    cuda_architecture: str
    paths: TorchPaths | None = field(compare=False)

    @property
    def folder(self) -> Path:
        """Where the library is kept."""
        return cache_folder() / "libraries" / self.name / self.key()

    def key(self) -> str:
        """The digest of all of this but the files that the sources include."""
        facts: dict[str, Any] = {
            "name": self.name,
            "sources": [[str(source), digest(source)] for source in self.sources],
            "generated": self.generated.key,
            "include_dirs": [str(folder) for folder in self.include_dirs],
            "defines": self.defines,
            "link_libraries": [[item, digest(Path(item))] for item in self.link_libraries],
            "flags": self.flags,
            "torch": self.torch,
            "torch_version": self.paths.version if self.paths and self.torch == "full" else "",
            "target": TARGET_VERSION,
            "compiler": _compiler_facts(self.compiler),
            "nvcc": _compiler_facts(self.nvcc) if self.nvcc else "",
            "architecture": self.architecture,
            "cuda_architecture": self.cuda_architecture,
            "processor": machine.processor()
            if self.architecture == "native"
            else platform.machine(),
            "opsmith": version(),
            "cmake_lists": digest(Path(__file__).with_name("cmake.py")),
        }
        return key_of(facts)


def _compiler_facts(compiler: Compiler) -> list[Any]:
    return [compiler.path, compiler.version, compiler.flags, compiler.link_flags]


def build_library(
    name: str,
    sources: Sequence[Path | str] = (),
    generated: Mapping[str, str] | Generated | None = None,
    *,
    include_dirs: Sequence[Path | str] = (),
    defines: Sequence[str] = (),
    link_libraries: Sequence[str] = (),
    flags: Sequence[str] = (),
    torch: str = "stable",
    cuda: bool = False,
    what: str | None = None,
) -> Path:
    """Compile and link one shared library, or find it in the cache.

    Sources are compiled where they lie, so that messages name the user's files. Several processes
    may ask for the same library at once: one builds, the others wait.

    Args:
        name: an identifier; the file is ``lib<name>.so``.
        sources: files to compile.
        generated: texts by file name, or `Generated`. They are on the include path, and those that
            end like sources are compiled too.
        include_dirs: further include folders.
        defines: preprocessor definitions, ``NAME`` or ``NAME=value``.
        link_libraries: further libraries, by path or by the linker's name.
        flags: further compiler flags; they come last and so win.
        torch: how much of PyTorch the library may need: ``"stable"`` its C shims, ``"none"``
            nothing (for another runtime), ``"full"`` its C++ interface of this very version.
        cuda: whether ``.cu`` files are among the sources.
        what: what is built, for messages; `name` by default.

    Returns:
        The library's path, in the cache.

    Raises:
        BuildError: a source does not compile or link (the message is the compiler's), or the
            library needs more of PyTorch than `torch` allows.
        MissingError: there is no compiler.
    """
    recipe = _recipe(
        name,
        sources,
        generated,
        include_dirs=include_dirs,
        defines=defines,
        link_libraries=link_libraries,
        flags=flags,
        torch=torch,
        cuda=cuda,
        what=what,
    )
    folder = recipe.folder
    return once(folder, lambda: find_cached(folder), lambda: _build(recipe, folder))


def find_library(name: str, **inputs: Any) -> Path | None:
    """The library that `build_library` would return without compiling, `None` if it would.

    Args:
        name: as `build_library` takes it.
        inputs: whatever else it takes.

    Raises:
        BuildError: there is no such source.
        MissingError: there is no compiler.
    """
    return find_cached(_recipe(name, **inputs).folder)


def _recipe(
    name: str,
    sources: Sequence[Path | str] = (),
    generated: Mapping[str, str] | Generated | None = None,
    *,
    include_dirs: Sequence[Path | str] = (),
    defines: Sequence[str] = (),
    link_libraries: Sequence[str] = (),
    flags: Sequence[str] = (),
    torch: str = "stable",
    cuda: bool = False,
    what: str | None = None,
) -> Recipe:
    if torch not in ("stable", "none", "full"):
        raise ValueError(f"torch={torch!r}; there are 'stable', 'none' and 'full'")
    what = what or name
    recipe = Recipe(
        name=name,
        sources=tuple(Path(source).resolve() for source in sources),
        generated=_as_generated(generated),
        include_dirs=tuple(Path(folder).resolve() for folder in include_dirs),
        defines=tuple(defines),
        link_libraries=tuple(link_libraries),
        flags=tuple(flags),
        torch=torch,
        what=what,
        compiler=toolchain.find_compiler(what),
        nvcc=find_nvcc(what) if cuda else None,
        architecture=toolchain.architecture(),
        cuda_architecture=cuda_architectures() if cuda else "",
        paths=torch_paths(),
    )
    for source in recipe.sources:
        if not source.is_file():
            raise BuildError(f"{what}: there is no file {source}")
    return recipe


def _as_generated(generated: Mapping[str, str] | Generated | None) -> Generated:
    if isinstance(generated, Generated):
        return generated
    texts = dict(generated or {})
    return Generated(key_of(texts), lambda: texts)


def find_cached(folder: Path) -> Path | None:
    """The library in `folder` whose included files are all as they were, if it is intact."""
    try:
        variants = json.loads((folder / "variants.json").read_text())
    except (OSError, ValueError):
        return None
    seen: dict[str, str | None] = {}
    for variant in variants:
        for path in variant["included"]:
            if path not in seen:
                seen[path] = digest(Path(path))
        if all(seen[path] == known for path, known in variant["included"].items()):
            library = folder / variant["library"]
            if digest(library) == variant["sha256"]:
                return library
    return None


def included_by(library: Path) -> list[Path]:
    """The files that a library's sources included: neither the system's, PyTorch's nor opsmith's.

    Args:
        library: what `build_library` returned.
    """
    folder = library.parent.parent
    variants = json.loads((folder / "variants.json").read_text())
    relative = str(library.relative_to(folder))
    names = next((one["included"] for one in variants if one["library"] == relative), ())
    return [path for path in map(Path, names) if not path.is_relative_to(INCLUDE)]


def _build(recipe: Recipe, folder: Path) -> Path:
    generated = cache_folder() / "generated" / f"{recipe.name}-{recipe.generated.key[:16]}"
    compiled = []
    for file_name, text in recipe.generated.render().items():
        write_atomically(generated / file_name, text)
        if file_name.endswith(_SOURCE_SUFFIXES):
            compiled.append(generated / file_name)
    work = Path(tempfile.mkdtemp(prefix=f"opsmith-{recipe.name}-"))
    try:
        started = time.time_ns()
        library, included = _compile(recipe, [*recipe.sources, *compiled], generated, work)
        audit(library, recipe.torch, _subject(recipe))
        return _store(recipe, folder, library, included, started)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _compile(
    recipe: Recipe, sources: Sequence[Path], generated: Path, work: Path
) -> tuple[Path, list[Path]]:
    cmake = toolchain.executable("cmake", recipe.what)
    ninja = toolchain.executable("ninja", recipe.what)
    (work / "CMakeLists.txt").write_text(
        cmake_lists(recipe, sources, [generated, INCLUDE, *recipe.include_dirs])
    )
    build = work / "build"
    environment = {
        key: value
        for key, value in os.environ.items()
        # They are in the CMakeLists, after its own flags.
        if key not in ("CXXFLAGS", "LDFLAGS", "CXX", "CUDACXX", "CUDAFLAGS", "CFLAGS")
    }
    # Messages are shown as they come, so they come without colours, and in English.
    environment.update(LC_ALL="C", NINJA_STATUS=_NINJA_STATUS, CLICOLOR_FORCE="0")
    title = f"building {recipe.what}"
    command = [cmake, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}", "-S", str(work)]
    configured = run([*command, "-B", str(build)], environment, title)
    if configured.returncode != 0:
        raise BuildError(f"{_subject(recipe)} could not be configured:\n\n{configured.stdout}")
    jobs = str(min(len(sources), os.cpu_count() or 1))
    built = run([ninja, "-C", str(build), "-j", jobs, "-k", "0"], environment, title)
    if built.returncode != 0:
        raise BuildError(_compile_error(recipe, built.stdout))
    if "warning: " in built.stdout:
        _log.warning("%s:\n%s", _subject(recipe), _own_words(built.stdout))
    (library,) = build.glob(f"lib*{_LIBRARY_SUFFIX}")
    depends = subprocess.run(
        [ninja, "-C", str(build), "-t", "deps"], capture_output=True, text=True, check=True
    )
    included = {
        Path(os.path.normpath(build / line.strip()))
        for line in depends.stdout.splitlines()
        if line.startswith("    ")
    }
    # The key stands for what is generated, the compiler's version for its headers.
    return library, sorted(
        path
        for path in included
        if not path.is_relative_to(generated) and not _is_system(path, recipe)
    )


def _subject(recipe: Recipe) -> str:
    files = " ".join(str(source) for source in recipe.sources)
    return f"{recipe.what}: {files}" if files else recipe.what


_NINJA_STATUS = "[opsmith] "
_NOISE = ("FAILED: ", "ninja: ", _NINJA_STATUS)
_STABLE_ONLY = "TORCH_STABLE_ONLY or TORCH_TARGET_VERSION"


def _own_words(output: str) -> str:
    """What the compiler and the linker said, without what Ninja says around it."""
    kept: list[str] = []
    skip = False
    for line in output.splitlines():
        if skip:  # the command, after "FAILED: "
            skip = False
            continue
        if line.startswith(_NOISE):
            skip = line.startswith("FAILED: ")
            continue
        kept.append(line)
    return "\n".join(kept).strip()


def _compile_error(recipe: Recipe, output: str) -> str:
    text = _own_words(output)
    missing = re.findall(r"undefined (?:reference to|symbol:?) [`']?(opsmith_kernel__\w+)", text)
    if missing:
        _, namespace, name, device = missing[0].split("__", 3)
        text = (
            f"It has no line OPSMITH_KERNEL({namespace}, {name}, {device}, …), or that line names "
            f"something else.\n\n{text}"
        )
    if _STABLE_ONLY in text:
        text += (
            "\n\nThis source includes PyTorch's C++ interface, which changes with every version. "
            'Use <opsmith/kernel.h> and torch/headeronly only, or register it with api="torch".'
        )
    verb = "did not link" if missing or "error: ld returned" in text else "did not compile"
    return f"{_subject(recipe)} {verb}:\n\n{text}"


def _is_system(path: Path, recipe: Recipe) -> bool:
    """Whether a header belongs to the compiler, the system or PyTorch, which versions stand for."""
    folders = [Path("/usr/include"), Path("/usr/lib"), Path("/usr/local/cuda")]
    for compiler in (recipe.compiler, recipe.nvcc):
        if compiler is not None:
            prefix = Path(os.path.realpath(compiler.path)).parent.parent
            folders += [prefix / "include", prefix / "lib", prefix / "targets"]
    if recipe.paths is not None:
        folders += recipe.paths.include
    return any(path.is_relative_to(folder) for folder in folders)


def _store(
    recipe: Recipe, folder: Path, library: Path, included: Sequence[Path], started: int
) -> Path:
    for path in [*recipe.sources, *included]:
        # A time in the future is a clock that is wrong, not a change.
        if started < path.stat().st_mtime_ns <= time.time_ns():
            raise BuildError(f"{recipe.what}: {path} was changed while it was compiled. Try again.")
    data = library.read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    # The folder is named after the content: a library that is loaded is never overwritten.
    relative = f"{sha256[:16]}/lib{recipe.name}{_LIBRARY_SUFFIX}"
    write_atomically(folder / relative, data)
    try:
        variants = json.loads((folder / "variants.json").read_text())
    except (OSError, ValueError):
        variants = []
    variants.insert(
        0,
        {
            "what": recipe.what,
            "library": relative,
            "sha256": sha256,
            "included": {str(path): digest(path) for path in included},
        },
    )
    write_atomically(folder / "variants.json", json.dumps(variants[:16], indent=1))
    return folder / relative
