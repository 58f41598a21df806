"""Load the gates' libraries, which are built once per PyTorch because they use its C++ interface.

The wheel of an installed package contains prebuilt ones.
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
from opsmith.kernels.libraries import prebuilt
from opsmith.system import progress, watchdog
from opsmith.system.files import digest, key_of

#: The interval in which an interrupted block looks whether its loaders have returned.
_LOOK_SECONDS = 0.1
#: A release of opsmith brings gates as an installed package does.
_OWN = Path(__file__).parents[3] / prebuilt.FOLDER
#: The names of the libraries' sources, and descriptions for messages.
_LIBRARIES = {
    "autograd_gate": "the autograd gate (once for this PyTorch)",
    "recorder": "the recorder of gradients (once for this PyTorch)",
}
if (_OWN / prebuilt.LIST).is_file():
    prebuilt.served.append(_OWN)


def load(name: str) -> ctypes.CDLL | None:
    """Return the library built from ``<name>.cpp``, or `None` if it cannot be built.

    The gates of an installed package are used if they were built for this PyTorch from the same
    sources. A check of the package then tests the package's own gates, and builds nothing.
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


def folders() -> list[Path]:
    """Return the folders of those libraries that are in the cache."""
    with contextlib.suppress(OpsmithError):
        return [one.folder() for one in map(_recipe, _LIBRARIES) if one.find() is not None]
    return []


def require() -> None:
    """Build all libraries that are not built yet.

    Raises:
        BuildError: a library does not compile; calls then pass through Python.
        MissingDependencyError: a tool that building needs is missing.
    """
    for name in _LIBRARIES:
        _recipe(name).build()


@contextlib.contextmanager
def loaded_beside(loaders: Sequence[Callable[[], object]]) -> Iterator[None]:
    """Call the loaders in threads while the block builds something else, and wait for them.

    The block does not end before the loaders, even by an exception. A thread that went on would
    not exist in a process forked later, and code that waits for it there would wait for ever. An
    interrupt, or SIGTERM, ends the compilers of the loaders.
    """
    if not loaders:
        yield
        return
    with futures.ThreadPoolExecutor(len(loaders), "opsmith-gate") as executor:
        loading = [executor.submit(loader) for loader in loaders]
        try:
            yield
            if futures.wait(loading, timeout=progress.QUIET_SECONDS).not_done:
                with progress.status(f"building {_LIBRARIES['autograd_gate']}"):
                    futures.wait(loading)
        except Exception:
            raise
        except BaseException:
            while futures.wait(loading, timeout=_LOOK_SECONDS).not_done:
                watchdog.end_all()
            raise


def say() -> str:
    """Describe in a sentence how installed packages' calls run outside ``torch.inference_mode``."""
    release = prebuilt.release_of(torch.__version__)
    for folder in prebuilt.served:
        if _came_with(folder) is not None:
            package = folder.parent.name
            return (
                f"opsmith is installed, and calls run in C++, through the gates of {package} for "
                f"PyTorch {release}"
            )
    return (
        f"opsmith is installed, and builds gates for PyTorch {release}, since no package brings "
        "fitting ones: opsmith doctor says whether it can"
    )


def sources() -> str:
    """Return a digest of the libraries' sources."""
    files = sorted(Path(__file__).parent.glob("*.h"))
    files += [Path(__file__).with_name(f"{name}.cpp") for name in _LIBRARIES]
    return key_of([digest(file) for file in files])


def _came_with(folder: Path) -> ctypes.CDLL | None:
    """Return the library with all gates of an installed package, if it fits this PyTorch."""
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
