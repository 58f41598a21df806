"""Split a call's arguments for JAX: arrays, known by their shapes, and fixed values."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from opsmith.errors import ArgumentError
from opsmith.signature.binding import TensorInfo
from opsmith.signature.model import Signature
from opsmith.signature.parameters import Parameter, ScalarType, SequenceType, TensorListType
from opsmith.signature.sizes.shapes import show_sizes
from opsmith.signature.wrong_arguments import show, too_large, wrong_value

Arrays = tuple[Any, ...]
"""The entries of tensor arguments: an array, a tuple of arrays for a list, or `None`."""
Numbers = tuple[Any, ...]
"""The entries of other arguments, hashable."""


def split(signature: Signature, arguments: Mapping[str, Any]) -> tuple[Arrays, Numbers]:
    """Return the arrays of a call, which JAX may trace, and all other arguments, which are fixed.

    Raises:
        ArgumentError: an argument has a different kind than declared.
    """
    arrays: list[Any] = []
    numbers: list[Any] = []
    for parameter in signature.parameters:
        value = arguments[parameter.name]
        if value is None and parameter.optional:
            (arrays if parameter.tensor_type is not None else numbers).append(None)
        elif parameter.is_tensor:
            arrays.append(_array(signature, parameter.name, parameter, value))
        elif isinstance(parameter.type, TensorListType):
            items = enumerate(_several(signature, parameter, value))
            arrays.append(
                tuple(
                    _array(signature, f"{parameter.name}[{i}]", parameter, item)
                    for i, item in items
                )
            )
        elif isinstance(parameter.type, SequenceType):
            kind = parameter.type.kind
            items = enumerate(_several(signature, parameter, value))
            numbers.append(
                tuple(_number(signature, f"{parameter.name}[{i}]", kind, item) for i, item in items)
            )
        else:
            assert isinstance(parameter.type, ScalarType)
            numbers.append(_number(signature, parameter.name, parameter.type.kind, value))
    return tuple(arrays), tuple(numbers)


def joined(signature: Signature, arrays: Arrays, numbers: Numbers) -> dict[str, Any]:
    """Return the arguments by name, from the results of `split`."""
    every, rest = iter(arrays), iter(numbers)
    return {p.name: next(every if p.tensor_type else rest) for p in signature.parameters}


def described(signature: Signature, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return `arguments` with every array replaced by its shape and dtype, for binding."""
    found = dict(arguments)
    for parameter in signature.tensors:
        value = arguments[parameter.name]
        if isinstance(value, tuple):
            found[parameter.name] = [_info(item) for item in value]
        elif value is not None:
            found[parameter.name] = _info(value)
    return found


def flat(arrays: Arrays) -> list[Any]:
    """Return every array, with lists flattened."""
    found: list[Any] = []
    for value in arrays:
        if isinstance(value, tuple):
            found += value
        elif value is not None:
            found.append(value)
    return found


def attributes(signature: Signature, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that XLA passes in addition to the arrays, without `None`."""
    found: dict[str, Any] = {}
    for parameter in signature.parameters:
        value = arguments[parameter.name]
        if value is None or parameter.tensor_type is not None:
            continue
        assert isinstance(parameter.type, ScalarType | SequenceType)
        if parameter.type.kind == "str":
            found[parameter.name] = value
            continue
        type_ = {"int": np.int64, "float": np.float64, "bool": np.uint8}[parameter.type.kind]
        many = isinstance(value, tuple)
        found[parameter.name] = np.array(value, dtype=type_) if many else type_(value)
    if any(p.optional or p.is_tensor_list for p in signature.tensors):
        values = [arguments[p.name] for p in signature.tensors]
        counts = [-1 if v is None else len(v) if isinstance(v, tuple) else 1 for v in values]
        found["opsmith_counts"] = np.array(counts, dtype=np.int64)
    return found


def _info(value: Any) -> TensorInfo:
    return TensorInfo(tuple(value.shape), value.dtype.name)


def _array(signature: Signature, name: str, parameter: Parameter, value: Any) -> Any:
    if isinstance(value, np.ndarray) and (value.dtype.kind in "OSUMm" or not value.dtype.isnative):
        raise ArgumentError(
            f"{signature.qualname}: argument {name!r} is an array of dtype {value.dtype}, which "
            "JAX does not have."
        )
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return value
    type_ = parameter.tensor_type if parameter.is_tensor_list else parameter.type
    raise _refused(signature, name, value, _expected(parameter, type_))


def _several(signature: Signature, parameter: Parameter, value: Any) -> Sequence[Any]:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return value
    if isinstance(value, np.ndarray) and value.ndim == 1 and parameter.is_sequence:
        return list(value.tolist())
    raise _refused(signature, parameter.name, value, _expected(parameter, parameter.type))


def _number(signature: Signature, name: str, kind: str, value: Any) -> Any:
    if isinstance(value, jax.core.Tracer):
        argument = name.partition("[")[0]
        raise ArgumentError(
            f"{signature.qualname}: argument {name!r} is traced by JAX, and the kernel takes it as "
            f"a Python {kind}, fixed while compiling. Mark it as static, as in "
            f'jax.jit(f, static_argnames=("{argument}",)), or call outside of the transformation.'
        )
    if kind == "str" or isinstance(value, str):
        if kind == "str" and isinstance(value, str):
            return value
        raise _refused(signature, name, value, kind)
    try:
        if kind != "int":
            return bool(value) if kind == "bool" else float(value)
        number = operator.index(value)
    except Exception:  # A class may raise anything here.
        raise _refused(signature, name, value, kind) from None
    if not -(2**63) <= number < 2**63:
        raise ArgumentError(f"{signature.qualname}: argument {too_large(name, number)}")
    return number


def _expected(parameter: Parameter, type_: Any) -> str:
    return f"{type_} or None" if parameter.optional and type_ is parameter.type else str(type_)


def _refused(signature: Signature, name: str, value: Any, expected: str) -> ArgumentError:
    array = isinstance(value, jax.Array | np.ndarray)
    shown = f"an array of shape {show_sizes(value.shape)}" if array else show(value)
    return ArgumentError(f"{signature.qualname}: argument {wrong_value(name, shown, expected)}")
