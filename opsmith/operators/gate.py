"""The autograd gate: lets calls that need no derivative pass PyTorch's own keys in C++.

See ``autograd_gate.cpp`` for why it exists. Everything works without it, one Python call slower.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.library import Library

from opsmith import kernels
from opsmith.errors import OpsmithError
from opsmith.kernels import progress

if TYPE_CHECKING:
    from opsmith.operators.base import Operator
    from opsmith.operators.declared_backward import DeclaredBackward
    from opsmith.operators.operator import DefinedOperator

_NAMESPACE = "opsmith_derivative"
_GATE = "autograd_gate", "the autograd gate (once for this PyTorch)"
_RECORDER = "recorder", "the recorder of gradients (once for this PyTorch)"


@contextlib.contextmanager
def built_beside(operators: Iterable[DefinedOperator] = ()) -> Iterator[None]:
    """Build the operators' gates, by default the plain one, while the block builds something else.

    It is there when the block ends, however that ends: a thread that went on would be lost in a
    process that forks then, and whoever waits for it there would wait for ever.
    """
    wanted = {load_recorder if is_recorded(operator) else load for operator in operators} or {load}
    waiting = [loader for loader in wanted if not loader.cache_info().currsize]
    if not waiting:
        yield
        return
    with futures.ThreadPoolExecutor(len(waiting), "opsmith-gate") as executor:
        loading = [executor.submit(loader) for loader in waiting]
        yield
        if futures.wait(loading, timeout=progress.QUIET_SECONDS).not_done:
            with progress.status(f"building {_GATE[1]}"):
                futures.wait(loading)


def is_recorded(operator: DefinedOperator) -> bool:
    """Whether calls that need a gradient are recorded in C++, where that can be built."""
    declared = operator.declared_backward
    return declared is not None and declared.recordable


@functools.cache
def load() -> ctypes.CDLL | None:
    """The built gate, or `None` where it cannot be built."""
    library = _built(*_GATE)
    if library is not None:
        library.opsmith_gate_open.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
        library.opsmith_gate_open.restype = ctypes.c_void_p
        library.opsmith_versions_open.argtypes = [ctypes.c_char_p]
        library.opsmith_versions_open.restype = ctypes.c_void_p
    return library


@functools.cache
def load_recorder() -> ctypes.CDLL | None:
    """The built gate that records declared backwards, or `None` where it cannot be built."""
    library = _built(*_RECORDER)
    if library is not None:
        text, count = ctypes.c_char_p, ctypes.c_uint64
        positions = ctypes.POINTER(ctypes.c_int64)
        library.opsmith_recorder_open.argtypes = [
            *(text, text, text, text, positions, count),
            *(positions, text, count, count),
        ]
        library.opsmith_recorder_open.restype = ctypes.c_void_p
    return library


def require() -> None:
    """Build the gates, where they are not yet.

    Raises:
        BuildError: one does not compile; calls pass through Python then.
        MissingError: something that building needs is not there.
    """
    for name, what in (_GATE, _RECORDER):
        _recipe(name, what).build()


def _recipe(name: str, what: str) -> kernels.Recipe:
    source = Path(__file__).with_name(f"{name}.cpp")
    return kernels.Recipe(name, sources=[source], torch="full", flags=("-O1",), what=what)


def _built(name: str, what: str) -> ctypes.CDLL | None:
    try:
        path = _recipe(name, what).build()
    except OpsmithError:
        return None
    library = ctypes.CDLL(str(path))
    library.opsmith_gate_close.argtypes = [ctypes.c_void_p]
    library.opsmith_gate_error.restype = ctypes.c_char_p
    return library


class Gate:
    """The gate before one operator, open until `close`; it raises version counters, too.

    Args:
        library: what `load` gave; what `load_recorder` gave, for a declared backward.
        operator: the operator.
        derivative: the Python function for calls that need a derivative.
        declared: the backward to record, if it is declared.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        operator: Operator,
        derivative: Callable[..., Any],
        declared: DeclaredBackward | None = None,
    ) -> None:
        signature = operator.signature
        self._library = library
        # The gate hands calls that need a derivative to an operator of the same schema, whose
        # only kernel is the Python function.
        name = f"{signature.namespace}__{signature.name}"
        self._derivative = Library(_NAMESPACE, "FRAGMENT")
        self._derivative.define(name + signature.schema().removeprefix(signature.name))
        self._derivative.impl(name, derivative, "Autograd", with_keyset=True)
        names = signature.qualname.encode(), f"{_NAMESPACE}::{name}".encode()
        if declared is None:
            opened = [library.opsmith_gate_open(*names)]
        else:
            opened = [library.opsmith_recorder_open(*names, *_plan(declared))]
        if signature.mutated:
            opened.append(library.opsmith_versions_open(names[0]))
        self._handles = [handle for handle in opened if handle]
        if len(self._handles) < len(opened):
            message = library.opsmith_gate_error().decode()
            self.close()
            raise OpsmithError(f"{signature.qualname}: {message}")

    def close(self) -> None:
        """Take the gate away."""
        for handle in self._handles:
            self._library.opsmith_gate_close(handle)
        self._derivative._destroy()


def _plan(declared: DeclaredBackward) -> tuple[Any, ...]:
    """A declared backward as ``opsmith_recorder_open`` takes it."""
    signature = declared.forward.signature
    known = {one.name: one for one in declared.given}
    given = [known.get(parameter.name) for parameter in declared.backward.signature.parameters]
    gradients = [-1 if place is None else place for place in declared.gradients]
    differentiable = "".join(
        "d" if parameter.name not in signature.nondifferentiable else "-"
        for parameter in signature.parameters
    )
    return (
        declared.backward.name.encode(),
        "".join("d" if one is None else one.kind[0] for one in given).encode(),
        (ctypes.c_int64 * len(given))(*(0 if one is None else one.position for one in given)),
        len(given),
        (ctypes.c_int64 * len(gradients))(*gradients),
        differentiable.encode(),
        len(gradients),
        len(signature.results),
    )
