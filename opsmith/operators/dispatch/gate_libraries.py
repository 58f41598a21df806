"""The libraries of the gates, built once for each PyTorch, since they use its C++ interface.

An installed package brings some that were built with its wheel.
"""

from __future__ import annotations

import contextlib
import ctypes
import platform
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from pathlib import Path

import torch

from opsmith import kernels
from opsmith.errors import OpsmithError
from opsmith.kernels import prebuilt
from opsmith.kernels.build import progress
from opsmith.kernels.build.files import digest, key_of

#: Their sources' names, and what they are, for messages.
_LIBRARIES = {
    "autograd_gate": "the autograd gate (once for this PyTorch)",
    "recorder": "the recorder of gradients (once for this PyTorch)",
}


def load(name: str) -> ctypes.CDLL | None:
    """The library made from ``<name>.cpp``, or `None` where it cannot be built.

    The gates of an installed package are taken where they are for this PyTorch, and made from the
    sources that are here: so they are what a check of the package tries, and nothing is built.
    """
    for folder in prebuilt.served:
        library = _came_with(folder)
        if library is not None:
            return library
    try:
        path = _recipe(name).build()
    except OpsmithError:
        return None
    return ctypes.CDLL(str(path))


def require() -> None:
    """Build all, where they are not yet.

    Raises:
        BuildError: one does not compile; calls pass through Python then.
        MissingError: something that building needs is not there.
    """
    for name in _LIBRARIES:
        _recipe(name).build()


@contextlib.contextmanager
def loaded_beside(loaders: Sequence[Callable[[], object]]) -> Iterator[None]:
    """Call the loaders while the block builds something else.

    They have returned when the block ends, however that ends: a thread that went on would be lost
    in a process that forks then, and whoever waits for it there would wait for ever.
    """
    if not loaders:
        yield
        return
    with futures.ThreadPoolExecutor(len(loaders), "opsmith-gate") as executor:
        loading = [executor.submit(loader) for loader in loaders]
        yield
        if futures.wait(loading, timeout=progress.QUIET_SECONDS).not_done:
            with progress.status(f"building {_LIBRARIES['autograd_gate']}"):
                futures.wait(loading)


def say() -> str:
    """A sentence on how calls of installed packages run outside ``torch.inference_mode``."""
    release = prebuilt.release_of(torch.__version__)
    for folder in prebuilt.served:
        if _came_with(folder) is not None:
            package = folder.parent.name
            return (
                f"opsmith is installed, and calls run in C++, by the gates of {package} for "
                f"PyTorch {release}"
            )
    return (
        f"opsmith is installed, and builds gates for PyTorch {release}, since none that came with "
        "a package fit: opsmith doctor says whether it can"
    )


def sources() -> str:
    """A digest of what the libraries are made from."""
    files = sorted(Path(__file__).parent.glob("*.h"))
    files += [Path(__file__).with_name(f"{name}.cpp") for name in _LIBRARIES]
    return key_of([digest(file) for file in files])


def _came_with(folder: Path) -> ctypes.CDLL | None:
    """The gates of an installed package, all in one library, where they fit."""
    wanted = {
        "torch": prebuilt.release_of(torch.__version__),
        "machine": platform.machine(),
        "sources": sources(),
    }
    for gates in prebuilt.gates(folder):
        if wanted.items() <= gates.items():
            try:
                return prebuilt.open_gates(folder, gates)
            except OSError as error:
                problem = f"its gates do not load, so opsmith builds its own: {error}"
                warnings.warn(f"{folder.parent.name}: {problem}", RuntimeWarning, stacklevel=2)
    return None


def _recipe(name: str) -> kernels.Recipe:
    source = Path(__file__).with_name(f"{name}.cpp")
    return kernels.Recipe(
        name, sources=[source], torch="full", flags=("-O1",), what=_LIBRARIES[name]
    )
