"""The autograd gate: lets calls that need no derivative pass the Autograd key in C++.

See ``autograd_gate.cpp`` for why it exists. Everything works without it, one Python call slower.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.library import Library

from opsmith import kernels
from opsmith.errors import OpsmithError
from opsmith.kernels import progress

if TYPE_CHECKING:
    from opsmith.operators.operator import Operator

_NAMESPACE = "opsmith_derivative"


@functools.cache
def begin() -> futures.Future[ctypes.CDLL | None]:
    """Start to build and load the gate, beside what the caller is about to build."""
    executor = futures.ThreadPoolExecutor(1, "opsmith-gate")
    loading = executor.submit(_load)
    executor.shutdown(wait=False)
    return loading


def load() -> ctypes.CDLL | None:
    """The built gate, or `None` where it cannot be built."""
    loading = begin()
    if futures.wait([loading], timeout=progress.QUIET_SECONDS).not_done:
        with progress.status(f"building {_WHAT}"):
            return loading.result()
    return loading.result()


_WHAT = "the autograd gate (once for this PyTorch)"


def _load() -> ctypes.CDLL | None:
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
