"""Build a program from a folder with a CMakeLists.txt, and cache it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from opsmith.errors import BuildError
from opsmith.kernels.toolchain import compilers, released
from opsmith.kernels.toolchain.compilers import Compiler
from opsmith.system.files import cache_folder, digest, key_of, needing_space, once, write_atomically
from opsmith.system.progress import run
from opsmith.system.scratch import scratch_folder


def build_program(
    name: str, sources: Path, settings: Mapping[str, str], *, include_dirs: Sequence[Path] = ()
) -> Path:
    """Build a program, or find it in the cache or in a release of opsmith.

    If several processes ask for the same program at once, one builds it and the others wait.

    Args:
        name: the name of the executable, which messages use too.
        sources: a folder with a ``CMakeLists.txt`` whose target is `name`. The cache key covers the
            files below `sources` and `include_dirs`, and `settings`, so nothing else may decide the
            result.
        settings: CMake's cache entries.
        include_dirs: folders of headers shared with other programs, passed to CMake as
            ``OPSMITH_INCLUDES``.
    """
    compiler = compilers.find_compiler(name)
    brought = released.find(name, [sources, *include_dirs], dict(settings), compiler)
    if brought is not None and _starts(brought):
        return brought
    if include_dirs:
        settings = {**settings, "OPSMITH_INCLUDES": ";".join(map(str, include_dirs))}
    # The paths count, too: code that is later built from the same headers must fit the program.
    digests = [[str(place), released.digests(place)] for place in (sources, *include_dirs)]
    folder = cache_folder() / "programs" / name / key_of([repr(compiler), dict(settings), digests])
    program, known = folder / name, folder / "sha256"

    def find() -> Path | None:
        try:
            return program if known.read_text() == digest(program) else None
        except OSError:
            return None

    def make() -> Path:
        with scratch_folder(name) as work, needing_space(work):
            _build(name, sources, work, settings, compiler)
            partial = folder / f"{name}.partial"
            shutil.copy2(work / name, partial)
            write_atomically(known, str(digest(partial)))
            os.replace(partial, program)
        return program

    return once(folder, find, make)


@cache
def _starts(program: Path) -> bool:
    """Return whether a program, called without its arguments, can say which it takes."""
    # If the C library is too old for the program, the loader ends the program with code 1.
    with contextlib.suppress(OSError):
        return subprocess.run([program], capture_output=True, check=False).returncode == 2
    return False


def _build(
    name: str, sources: Path, work: Path, settings: Mapping[str, str], compiler: Compiler
) -> None:
    cmake = compilers.executable("cmake", name)
    ninja = compilers.executable("ninja", name)
    defined = [f"-D{key}={value}" for key, value in settings.items()]
    generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
    chosen = f"-DCMAKE_CXX_COMPILER={compiler.path}"
    for command in (
        [cmake, *generator, "-S", str(sources), "-B", str(work), chosen, *defined],
        [ninja, "-C", str(work)],
    ):
        done = run(command, {**os.environ, "LC_ALL": "C"}, f"building {name}")
        if done.returncode != 0:
            raise BuildError(f"{name}: {sources} did not compile:\n\n{done.stdout}")
