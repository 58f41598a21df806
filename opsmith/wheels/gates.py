"""Build a wheel's gates: one library per PyTorch release, for all operators of the package.

A gate uses PyTorch's C++ interface, so it works with one release only, and needs the C++ library
with which PyTorch is built, which is GCC's. Everything else in a wheel uses only the stable ABI.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from opsmith.errors import (
    BuildError,
    ExportError,
    MissingDependencyError,
    OpsmithError,
    OptionError,
)
from opsmith.kernels.libraries import prebuilt
from opsmith.kernels.toolchain import compilers
from opsmith.kernels.toolchain.audit import dynamic_symbols
from opsmith.kernels.toolchain.torch_paths import TorchPaths, paths_of, torch_paths
from opsmith.operators.dispatch.gates import gate_libraries
from opsmith.system import progress
from opsmith.system.files import cache_folder, digest, key_of, once, write_atomically
from opsmith.system.scratch import held_folder
from opsmith.wheels.platforms import Platform, compiler_for, torch_stub

_GATES = Path(gate_libraries.__file__).parent
_SOURCES = Path(__file__).with_name("gate_sources")
# The symbol versions of GCC's libraries that systems with glibc 2.28 provide.
_OLDEST = {"GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11)}
_COMPILE = (
    "-std=c++20 -O1 -DNDEBUG -fPIC -fvisibility=hidden -fvisibility-inlines-hidden "
    "-ffunction-sections -fdata-sections -D_GLIBCXX_USE_CXX11_ABI=1"
).split()
_LINK = (
    "-shared -Wl,-Bsymbolic -Wl,-z,undefs -Wl,--no-as-needed -Wl,--strip-all -Wl,--gc-sections"
).split()


def build_gates(
    asked: Sequence[TorchPaths], kind: Platform, say: Callable[[str], None] | None = None
) -> tuple[list[dict[str, Any]], dict[str, bytes]]:
    """Build gates for the installed PyTorch, if possible, and for requested releases.

    Args:
        asked: the headers of further releases, from `find_headers`.
        kind: the platform.
        say: a function that receives the reason if the installed PyTorch gets no gates.

    Returns:
        A description of each library, and the files by their paths in the package.
    """
    found: dict[str, Path] = {}
    installed = torch_paths()
    if installed is not None:
        try:
            found[prebuilt.release_of(installed.version)] = _library(kind, installed)
        except OpsmithError as error:
            if say is not None:
                say(f"no gates for PyTorch {installed.version}, calls pass through Python: {error}")
    for paths in asked:
        release = prebuilt.release_of(paths.version)
        if release not in found:
            found[release] = _library(kind, paths)
    entries, files = [], {}
    for release, library in sorted(found.items()):
        file = f"gates/{kind.machine}-{release}.so"
        data = library.read_bytes()
        files[f"{prebuilt.FOLDER}/{file}"] = data
        entries.append(
            {
                "torch": release,
                "machine": kind.machine,
                "file": file,
                "sources": gate_libraries.sources(),
                "sha256": hashlib.sha256(data).hexdigest(),
            }
        )
    return entries, files


def find_headers(asked: str) -> TorchPaths:
    """Return PyTorch's headers, of a release or in a folder.

    Args:
        asked: a release, ``"2.10.0"``, whose headers pip downloads once; or a folder that contains
            them.
    """
    if Path(asked).is_dir():
        paths = paths_of(Path(asked).resolve())
        if not paths.version or not (paths.include[0] / "ATen").is_dir():
            raise OptionError(
                f"{asked}: is no PyTorch: version.py or include/ATen is missing. Name the folder "
                "torch in its site-packages."
            )
        return paths
    installed = torch_paths()
    if installed is not None and prebuilt.release_of(installed.version) == asked:
        return installed
    if not re.fullmatch(r"\d+\.\d+\.\d+", asked):
        raise OptionError(f"{asked}: is neither a release of PyTorch, as 2.10.0, nor a folder")
    folder = cache_folder() / "wheels" / "headers" / asked

    def there() -> Path | None:
        return folder / "torch" if (folder / "torch" / "version.py").is_file() else None

    return paths_of(once(folder, there, lambda: _download(asked, folder)))


def _download(release: str, folder: Path) -> Path:
    """Download PyTorch's headers with pip, from its configured index.

    They are taken from the wheel for macOS, which has a tenth of the size of one with CUDA. It
    contains the headers for all systems, since differences are left to the preprocessor.
    """
    with held_folder(folder, "opsmith-torch-", ".scratch") as work:
        command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check"]
        command += ["--no-deps", "--only-binary=:all:", "--platform=macosx_26_0_arm64"]
        command += ["--dest", str(work), f"torch=={release}"]
        done = progress.run(command, os.environ, f"downloading PyTorch {release}")
        if done.returncode != 0:
            last = (done.stdout.strip().splitlines() or [""])[-1]
            raise ExportError(
                f"the headers of PyTorch {release} could not be downloaded: {last}\n"
                "Give the folder of an installed one instead: --gates .../site-packages/torch"
            )
        (wheel,) = work.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            kept = [name for name in archive.namelist() if name.startswith("torch/include/")]
            archive.extractall(work, kept)
        os.replace(Path(work, "torch", "include"), _cleared(folder / "torch") / "include")
    # Written last: the file shows that the headers are complete.
    write_atomically(folder / "torch" / "version.py", f"__version__ = '{release}'\n")
    return folder / "torch"


def _cleared(folder: Path) -> Path:
    """Return an empty folder, after removing what an interrupted download may have left."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _library(kind: Platform, torch: TorchPaths) -> Path:
    """Return the library of gates for one PyTorch, from the cache if it is there."""
    what = f"the gates for PyTorch {torch.version}"
    compiler = compiler_for(kind, what)
    sources = sorted(_SOURCES.glob("*.cpp"))
    command = [compiler, *_COMPILE, f"-I{_SOURCES}", f"-I{_GATES}", *_cxx_library(kind, what)]
    for folder in torch.include:
        command += ["-isystem", str(folder)]
    # PyTorch's messages contain paths of its files; remove the build machine's folders from them.
    command += [f"-ffile-prefix-map={torch.include[0]}=torch", f"-ffile-prefix-map={_GATES}=."]
    command += [*map(str, sources), *_LINK, str(torch_stub(kind) / "libtorch_cpu.so")]
    facts = [
        command,
        compilers.tool_version(compiler, what),
        torch.version,
        digest(torch.include[0].parent / "version.py"),
        [digest(file) for place in (_GATES, _SOURCES) for file in sorted(place.rglob("*.[ch]*"))],
    ]
    folder = cache_folder() / "wheels" / kind.name / "gates" / key_of(facts)
    made = folder / "gates.so"

    def make() -> Path:
        # Only this process holds the lock; it overwrites what an interrupted build left.
        work = folder / "gates.partial"
        done = progress.run([*command, "-o", str(work)], os.environ, f"building {what}")
        if done.returncode != 0:
            raise BuildError(f"{what} do not compile:\n\n{done.stdout}")
        if kind.target:
            _audit(work, what)
        os.replace(work, made)
        return made

    return once(folder, lambda: made if made.is_file() else None, make)


def _cxx_library(kind: Platform, what: str) -> Iterator[str]:
    """Yield compiler options to use GCC's C++ library; none for this machine's own compiler."""
    if not kind.target:
        return
    own = compilers.find_compiler(what).path
    said = subprocess.run(
        [own, "-E", "-v", "-x", "c++", os.devnull], capture_output=True, text=True
    ).stderr
    folders = [Path(line.strip()).resolve() for line in said.splitlines() if line.startswith(" /")]
    theirs = [folder for folder in folders if "c++" in folder.parts]
    if not any((folder / "bits" / "c++config.h").is_file() for folder in theirs):
        raise MissingDependencyError(
            f"{what}: need the headers of GCC's C++ library, which PyTorch is built with, and "
            f"{own} has none. Install g++ (Debian, Ubuntu: apt install g++)."
        )
    yield from ("-nostdinc++", "-nostdlib++", "-w")
    # These folders have to precede the C library's, whose headers they wrap. Some of their headers
    # are for this machine's processor; gates use only what is equal on all processors.
    yield from (f"-I{folder}" for folder in theirs)


def _audit(library: Path, what: str) -> None:
    """Refuse gates that need a newer C++ library than the oldest supported system has.

    Gates are linked without the C++ library, since the local one may be for another processor. So
    their symbols have no versions that auditwheel could read.
    """
    versions = _symbol_versions(Path(_of_compiler("libstdc++.so.6", what)).resolve())
    newer = sorted(
        f"  {symbol.name} ({version})"
        for symbol in dynamic_symbols(library)
        if not symbol.defined and (version := versions.get(symbol.name, "")) and _is_newer(version)
    )
    if newer:
        raise BuildError(
            f"{what} need symbols that the C++ library of older systems does not have:\n"
            + "\n".join(newer)
        )


def _is_newer(version: str) -> bool:
    name, _, numbers = version.partition("_")
    return tuple(map(int, numbers.split("."))) > _OLDEST.get(name, (sys.maxsize,))


def _of_compiler(file: str, what: str) -> str:
    command = [compilers.find_compiler(what).path, f"-print-file-name={file}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _symbol_versions(library: Path) -> dict[str, str]:
    """Return the version of each symbol that a library defines, if the version is numeric."""
    from elftools.elf.elffile import ELFFile

    found = {}
    with library.open("rb") as file:
        sections: Any = ELFFile(file).get_section_by_name
        named = {
            definition["vd_ndx"]: next(iter(names)).name
            for definition, names in sections(".gnu.version_d").iter_versions()
        }
        of_symbols = sections(".gnu.version")
        for index, symbol in enumerate(sections(".dynsym").iter_symbols()):
            number = of_symbols.get_symbol(index)["ndx"]
            version = named.get(number & 0x7FFF, "") if isinstance(number, int) else ""
            if re.fullmatch(r"[A-Z]+_[\d.]+", version):
                found[symbol.name] = version
    return found
