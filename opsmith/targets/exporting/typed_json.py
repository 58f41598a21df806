"""Read dataclasses from decoded JSON, and report the place of a value of the wrong type."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

from opsmith.untyped import Hint, Json


class Mismatch(ValueError):
    """A value does not have the type that its place requires; the message names the place."""


def read(type_: Any, value: object, place: str) -> Any:  # an instance of `type_`
    """Return `value`, decoded from JSON, as a `type_`.

    Args:
        type_: a dataclass (JSON must have all of its fields), ``Mapping[str, X]``, ``tuple[X,
            ...]``, a tuple of several types, a union, `str`, `int`, `float`, `None`, or `Any`.
        value: the decoded JSON.
        place: the value's name in messages, such as ``inputs[0].shape``.

    Raises:
        Mismatch: `value` has another type.
    """
    origin, parameters = typing.get_origin(type_), typing.get_args(type_)
    if type_ is Any:  # which any JSON fits
        return value
    if is_dataclass(type_):
        return _record(type_, value, place)
    if origin in (types.UnionType, typing.Union):
        return _any_of(parameters, value, place)
    if origin is Mapping:
        facts = _require(dict, value, place)
        return {
            name: read(parameters[1], item, _child(place, name)) for name, item in facts.items()
        }
    if origin is tuple:
        items = _require(list, value, place)
        if parameters[-1] is ...:
            parameters = parameters[:1] * len(items)
        elif len(items) != len(parameters):
            raise Mismatch(f"{place} has {len(items)} elements, expected {len(parameters)}")
        pairs = enumerate(zip(parameters, items, strict=True))
        return tuple(read(item_type, item, f"{place}[{i}]") for i, (item_type, item) in pairs)
    return _require(type_, value, place)


def _record(type_: Hint, value: object, place: str) -> object:
    facts = _require(dict, value, place)
    hints = typing.get_type_hints(type_)
    missing = [name for name in hints if name not in facts]
    if missing:
        raise Mismatch(f"{_child(place, missing[0])} is missing")
    return type_(
        **{name: read(hint, facts[name], _child(place, name)) for name, hint in hints.items()}
    )


def _any_of(types_: tuple[object, ...], value: object, place: str) -> object:
    problems = []
    for type_ in types_:
        try:
            return read(type_, value, place)
        except Mismatch as error:
            problems.append(error)
    # If one of the types is a record, its own problem is more helpful than the list of types.
    deeper = [error for error in problems if not str(error).startswith(f"{place} is ")]
    raise deeper[0] if deeper else _mismatch(types_, value, place)


def _require(type_: type | None, value: object, place: str) -> Json:
    expected = type(None) if type_ is None else type_
    if expected is float and type(value) is int:
        return float(value)
    if type(value) is not expected:  # A bool must not pass as an int.
        raise _mismatch((type_,), value, place)
    return value


_NAMES = {dict: "an object", list: "a list", str: "a string", int: "an integer", float: "a number"}
_NAMES |= {type(None): "null", bool: "a boolean"}


def _mismatch(types_: tuple[Hint, ...], value: object, place: str) -> Mismatch:
    expected = [
        "an object" if is_dataclass(t) or t is Mapping else _NAMES[type(None) if t is None else t]
        for t in types_
    ]
    return Mismatch(f"{place or 'it'} is {_NAMES[type(value)]}, expected {' or '.join(expected)}")


def _child(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name
