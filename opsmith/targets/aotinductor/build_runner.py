"""Builds the C++ program that runs artifacts."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from opsmith.errors import BuildError, MissingError
from opsmith.kernels import cache_folder, toolchain
from opsmith.kernels.progress import run
from opsmith.kernels.torch_paths import torch_paths

SOURCES = Path(__file__).with_name("runner")
PROGRAM = "opsmith-run"


def build_runner(sources: Path = SOURCES) -> Path:
    """Build the program against the installed PyTorch, or find it in the cache.

    Args:
        sources: the folder of ``main.cpp`` and ``CMakeLists.txt``; opsmith's own by default.

    Returns:
        The program's path, in the cache.

    Raises:
        BuildError: it does not compile; the message is the compiler's.
        MissingError: there is no compiler or no PyTorch.
    """
    from filelock import FileLock

    compiler = toolchain.find_compiler(PROGRAM)
    paths = torch_paths()
    if paths is None:
        raise MissingError(f"{PROGRAM}: needs PyTorch's libraries. Get them: pip install torch")
    files = sorted(path for path in sources.iterdir() if path.is_file())
    facts = [str(compiler), str(paths), *(f"{path.name}\0{path.read_text()}" for path in files)]
    key = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:24]
    folder = cache_folder() / "runner" / key
    program = folder / PROGRAM
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "lock"):
        if not program.exists():
            with tempfile.TemporaryDirectory(prefix="opsmith-runner-") as work:
                _build(sources, Path(work), paths.library.parent, compiler.path)
                partial = folder / f"{PROGRAM}.partial"
                shutil.copy2(Path(work) / PROGRAM, partial)
                os.replace(partial, program)
    return program


def _build(sources: Path, work: Path, torch: Path, compiler: str) -> None:
    cmake = toolchain.executable("cmake", PROGRAM)
    ninja = toolchain.executable("ninja", PROGRAM)
    title = f"building {PROGRAM}"
    settings = [f"-DTORCH_DIR={torch}", f"-DCMAKE_CXX_COMPILER={compiler}"]
    generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
    for command in (
        [cmake, *generator, "-S", str(sources), "-B", str(work), *settings],
        [ninja, "-C", str(work)],
    ):
        done = run(command, {**os.environ, "LC_ALL": "C"}, title)
        if done.returncode != 0:
            raise BuildError(f"{PROGRAM}: {sources} did not compile:\n\n{done.stdout}")
