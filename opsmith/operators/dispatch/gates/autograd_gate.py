"""The autograd gate: lets calls that need no derivative pass PyTorch's autograd keys in C++.

``autograd_gate.cpp`` says why it exists. Without the gate, each call costs one more Python call.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch.library import Library

from opsmith.compat.torch_library import destroy
from opsmith.errors import OpsmithError
from opsmith.operators.dispatch.gates import gate_libraries
from opsmith.signature import Signature

if TYPE_CHECKING:
    from opsmith.operators.core.operator import RegisteredOperator
    from opsmith.operators.dispatch.declared_backward import DeclaredBackward

_NAMESPACE = "opsmith_derivative"


def built_beside(operators: Iterable[RegisteredOperator] = ()) -> AbstractContextManager[None]:
    """Build the operators' gates in parallel with a block of code; each needs the plain gate."""
    wanted = [load, *([load_recorder] if any(map(is_recorded, operators)) else [])]
    return gate_libraries.loaded_beside(
        [loader for loader in wanted if not loader.cache_info().currsize]
    )


def is_recorded(operator: RegisteredOperator) -> bool:
    """Return whether C++ records calls that need a gradient, if the recorder can be built."""
    declared = operator.declared_backward
    return declared is not None and declared.recordable


@functools.cache
def load() -> ctypes.CDLL | None:
    """Return the library of the gate, or `None` if it cannot be built."""
    library = _loaded("autograd_gate")
    if library is not None:
        library.opsmith_gate_open.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
        library.opsmith_gate_open.restype = ctypes.c_void_p
        library.opsmith_versions_open.argtypes = [ctypes.c_char_p]
        library.opsmith_versions_open.restype = ctypes.c_void_p
    return library


@functools.cache
def load_recorder() -> ctypes.CDLL | None:
    """Return the library of the gate that records declared backwards, or `None`."""
    library = _loaded("recorder")
    if library is not None:
        text, count = ctypes.c_char_p, ctypes.c_uint64
        positions = ctypes.POINTER(ctypes.c_int64)
        library.opsmith_recorder_open.argtypes = [
            *(text, text, text, text, positions, count),
            *(positions, text, count, text),
        ]
        library.opsmith_recorder_open.restype = ctypes.c_void_p
    return library


def _loaded(name: str) -> ctypes.CDLL | None:
    library = gate_libraries.load(name)
    if library is not None:
        library.opsmith_gate_close.argtypes = [ctypes.c_void_p]
        library.opsmith_gate_error.restype = ctypes.c_char_p
    return library


class Gate:
    """The gate before one operator, open until `close`; it also raises version counters.

    Args:
        library: the library from `load`; from `load_recorder` for a declared backward.
        derivative: the Python function for calls that need a derivative.
        declared: the backward to record, if there is a declared one.
        out: whether the gate stands before the operator's out variant, which `derivative` refuses.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        signature: Signature,
        derivative: Callable[..., object],
        declared: DeclaredBackward | None = None,
        *,
        out: bool = False,
    ) -> None:
        self._library = library
        # For calls that need a derivative, the gate calls a second operator of the same schema,
        # whose only kernel is the Python function.
        schema = signature.out_schema() if out else signature.schema()
        own = schema.partition("(")[0]
        name = f"{signature.namespace}__{own}"
        self._derivative = Library(_NAMESPACE, "FRAGMENT")
        self._derivative.define(f"{signature.namespace}__{schema}")
        self._derivative.impl(name, derivative, "Autograd", with_keyset=True)
        names = f"{signature.namespace}::{own}".encode(), f"{_NAMESPACE}::{name}".encode()
        if declared is None:
            opened = [library.opsmith_gate_open(*names)]
        else:
            opened = [library.opsmith_recorder_open(*names, *_plan(declared))]
        if signature.mutated or out:
            opened.append(library.opsmith_versions_open(names[0]))
        self._handles = [handle for handle in opened if handle]
        if len(self._handles) < len(opened):
            message = library.opsmith_gate_error().decode()
            self.close()
            raise OpsmithError(f"{signature.qualname}: {message}")

    def close(self) -> None:
        """Remove the gate."""
        for handle in self._handles:
            self._library.opsmith_gate_close(handle)
        destroy(self._derivative)


def _plan(declared: DeclaredBackward) -> tuple[object, ...]:
    """Encode a declared backward as arguments of ``opsmith_recorder_open``."""
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
        "".join("d" if one.differentiable else "-" for one in signature.results).encode(),
    )
