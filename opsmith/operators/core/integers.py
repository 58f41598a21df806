"""Find numbers that PyTorch would truncate to an int where the declaration says int."""

from __future__ import annotations

import operator
import sys
from typing import Any

import torch
from torch import Tensor

from opsmith.signature import ScalarType, SequenceType, Signature


def int_places(signature: Signature) -> tuple[tuple[int, str], ...]:
    """Return position and name of each parameter whose type is int or a sequence of ints."""
    return tuple(
        (sys.maxsize if parameter.keyword_only else position, parameter.name)
        for position, parameter in enumerate(signature.parameters)
        if isinstance(parameter.type, ScalarType | SequenceType) and parameter.type.kind == "int"
    )


def is_cut(value: Any) -> bool:
    """Return whether `value` is, or holds, a number that Python does not convert to int itself."""
    if isinstance(value, list | tuple):
        return any(type(item) is not int and is_cut(item) for item in value)
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
