"""The autograd gate: lets calls that need no derivative pass the Autograd key in C++.

See ``autograd_gate.cpp`` for why it exists. Everything works without it, one Python call slower.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.library import Library

from opsmith import kernels
from opsmith.errors import OpsmithError
from opsmith.kernels import progress

if TYPE_CHECKING:
    from opsmith.operators.base import Operator

_NAMESPACE = "opsmith_derivative"
_WHAT = "the autograd gate (once for this PyTorch)"


@contextlib.contextmanager
def built_beside() -> Iterator[None]:
    """Build the gate while the block builds something else.

    It is there when the block ends, however that ends: a thread that went on would be lost in a
    process that forks then, and whoever waits for it there would wait for ever.
    """
    if load.cache_info().currsize:
        yield
        return
    with futures.ThreadPoolExecutor(1, "opsmith-gate") as executor:
        loading = executor.submit(load)
        yield
        if futures.wait([loading], timeout=progress.QUIET_SECONDS).not_done:
            with progress.status(f"building {_WHAT}"):
                futures.wait([loading])


@functools.cache
def load() -> ctypes.CDLL | None:
    """The built gate, or `None` where it cannot be built."""
    try:
        path = kernels.build_library(
            "autograd_gate",
            sources=[Path(__file__).with_name("autograd_gate.cpp")],
            torch="full",
            flags=("-O1",),
            what=_WHAT,
        )
    except OpsmithError:
        return None
    library = ctypes.CDLL(str(path))
    library.opsmith_gate_open.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
    library.opsmith_gate_open.restype = ctypes.c_void_p
    library.opsmith_gate_close.argtypes = [ctypes.c_void_p]
    library.opsmith_gate_error.restype = ctypes.c_char_p
    return library


class Gate:
    """The gate before one operator, open until `close`."""

    def __init__(
        self, library: ctypes.CDLL, operator: Operator, derivative: Callable[..., Any]
    ) -> None:
        signature = operator.signature
        self._library = library
        # The gate hands calls that need a derivative to an operator of the same schema, whose
        # only kernel is the Python function.
        name = f"{signature.namespace}__{signature.name}"
        self._derivative = Library(_NAMESPACE, "FRAGMENT")
        self._derivative.define(name + signature.schema().removeprefix(signature.name))
        self._derivative.impl(name, derivative, "Autograd", with_keyset=True)
        self._handle = library.opsmith_gate_open(
            signature.qualname.encode(), f"{_NAMESPACE}::{name}".encode()
        )
        if not self._handle:
            raise OpsmithError(f"{signature.qualname}: {library.opsmith_gate_error().decode()}")

    def close(self) -> None:
        """Take the gate away."""
        self._library.opsmith_gate_close(self._handle)
        self._derivative._destroy()
