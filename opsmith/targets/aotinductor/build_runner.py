"""Build the C++ program that runs artifacts."""

from __future__ import annotations

from pathlib import Path

from opsmith.errors import MissingDependencyError
from opsmith.kernels.toolchain.program import build_program
from opsmith.kernels.toolchain.torch_paths import torch_paths

SOURCES = Path(__file__).with_name("runner")
PROGRAM = "opsmith-run"


def build_runner(sources: Path = SOURCES) -> Path:
    """Build the program against the installed PyTorch, or find it in the cache.

    Args:
        sources: the folder of ``main.cpp`` and ``CMakeLists.txt``; opsmith's own by default.

    Returns:
        The program's path, in the cache.

    Raises:
        BuildError: the program does not compile; the message is the compiler's.
        MissingDependencyError: the compiler or PyTorch is missing.
    """
    paths = torch_paths()
    if paths is None:
        raise MissingDependencyError(
            f"{PROGRAM}: needs PyTorch's libraries. Get them: pip install torch"
        )
    # The version represents the contents of PyTorch's folder.
    settings = {"TORCH_DIR": str(paths.library.parent), "TORCH_VERSION": paths.version}
    return build_program(PROGRAM, sources, settings)
