"""Find numbers that PyTorch would truncate to an int or a float where the declaration says so."""

from __future__ import annotations

import numbers
import operator
import sys
from typing import Any

import torch
from torch import Tensor

from opsmith.signature import ScalarType, SequenceType, Signature

_NUMBERS: dict[str, type[int] | type[float]] = {"int": int, "float": float}


def number_places(signature: Signature) -> tuple[tuple[int, str, type[int] | type[float]], ...]:
    """Return position, name and type of each parameter that is a number or a sequence of them."""
    return tuple(
        (sys.maxsize if parameter.keyword_only else position, parameter.name, _NUMBERS[kind])
        for position, parameter in enumerate(signature.parameters)
        if isinstance(parameter.type, ScalarType | SequenceType)
        and (kind := parameter.type.kind) in _NUMBERS
    )


def is_cut(value: Any, kind: type[int] | type[float]) -> bool:
    """Return whether `value` is, or holds, a number that Python does not convert to `kind` itself.

    An int is cut from what has a fraction, a float from what has an imaginary part, as
    `numpy.complex64`, whose `__float__` only warns.
    """
    if isinstance(value, list | tuple):
        return any(type(item) is not kind and is_cut(item, kind) for item in value)
    if kind is float:
        return is_complex(value)
    if value is None or isinstance(value, int | str | torch.SymInt):
        return False
    if isinstance(value, Tensor):
        return value.is_floating_point() or value.is_complex()
    if getattr(value, "ndim", 0):
        return True
    try:
        operator.index(value)
    except Exception:  # a foreign class may raise anything
        return True
    return False


def is_complex(value: Any) -> bool:
    """Return whether a number is complex, be it Python's or NumPy's."""
    return isinstance(value, numbers.Complex) and not isinstance(value, numbers.Real)
