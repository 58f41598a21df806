"""The libraries of the gates, built once for each PyTorch, since they use its C++ interface."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from pathlib import Path

from opsmith import kernels
from opsmith.errors import OpsmithError
from opsmith.kernels import progress

#: Their sources' names, and what they are, for messages.
_LIBRARIES = {
    "autograd_gate": "the autograd gate (once for this PyTorch)",
    "recorder": "the recorder of gradients (once for this PyTorch)",
}


def load(name: str) -> ctypes.CDLL | None:
    """The library made from ``<name>.cpp``, or `None` where it cannot be built."""
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


def _recipe(name: str) -> kernels.Recipe:
    source = Path(__file__).with_name(f"{name}.cpp")
    return kernels.Recipe(
        name, sources=[source], torch="full", flags=("-O1",), what=_LIBRARIES[name]
    )
