"""Describe a function's parameters, and write the messages of refused calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from opsmith.errors import ArgumentError, OpsmithError
from opsmith.targets.python.package import _arrays

KINDS = "tensor tensors integer floating boolean text integers floats booleans".split()
"""The kinds, in the order of ``Kind`` in the extension."""
_ITEMS = {"integers": "int", "floats": "float", "booleans": "bool"}
_KINDS_OF_ITEMS = {
    "tensors": "tensor",
    "integers": "integer",
    "floats": "floating",
    "booleans": "boolean",
}
_NO_DEFAULT: Any = object()
_REFUSED, _OUT_OF_MEMORY = 1, 3
"""Values of ``Status`` in the extension."""


@dataclass(frozen=True)
class Parameter:
    """An argument of a function.

    Attributes:
        name: name of the argument.
        kind: one of `KINDS`.
        type: its type in the declaration.
        optional: whether ``None`` may be passed.
        written: whether the function writes into it.
        keyword_only: whether it can only be passed by name.
        default: value when it is not passed.
    """

    name: str
    kind: str
    type: str
    optional: bool = False
    written: bool = False
    keyword_only: bool = False
    default: Any = _NO_DEFAULT

    @property
    def index(self) -> int:
        """Return the position of the kind in `KINDS`."""
        return KINDS.index(self.kind)

    @property
    def has_default(self) -> bool:
        """Return whether the argument may be left out."""
        return self.default is not _NO_DEFAULT

    def item(self) -> str:
        """Return the type of an element."""
        return _ITEMS.get(self.kind) or self.type.removeprefix("list[").removesuffix("]")


class Refusal:
    """Creates the exceptions of calls that fail.

    Args:
        qualname: name of the operator.
        parameters: parameters of the function.
    """

    def __init__(self, qualname: str, parameters: Sequence[Parameter]) -> None:
        self._qualname = qualname
        self._parameters = parameters

    def call(self, args: Sequence[Any], keywords: Sequence[str]) -> ArgumentError:
        """Return the error for a call with too many, missing or unknown arguments."""
        return ArgumentError(f"{self._qualname}: {self._call(args, keywords)}")

    def _call(self, args: Sequence[Any], keywords: Sequence[str]) -> str:
        names = [parameter.name for parameter in self._parameters]
        if len(args) > len(names):
            return f"takes {len(names)} arguments, got {len(args)}."
        for parameter in self._parameters[: len(args)]:
            if parameter.keyword_only:
                return f"argument {parameter.name!r} must be given by name: {parameter.name}=..."
        given = set(names[: len(args)])
        for name in keywords:
            if name not in names:
                return f"has no argument {name!r}; there are {', '.join(names)}."
            if name in given:
                return f"argument {name!r} is given twice."
        given.update(keywords)
        missing = [p.name for p in self._parameters if p.name not in given and not p.has_default]
        return f"argument {missing[0]!r} is missing."

    def argument(self, index: int, value: Any, item: int) -> ArgumentError:
        """Return the error for an argument that does not fit the declaration.

        Args:
            index: position of the parameter.
            value: the value that was passed.
            item: position of the offending element, -1 for the whole value.
        """
        parameter = self._parameters[index]
        name, wanted = parameter.name, parameter.type
        kind = parameter.kind
        if item >= 0:
            kind = _KINDS_OF_ITEMS[kind]
            name, value, wanted = f"{name}[{item}]", value[item], parameter.item()
        elif parameter.optional:
            wanted = f"{wanted} or None"
        problem = _arrays.why_not(value, parameter.written) if kind == "tensor" else None
        if kind == "integer" and isinstance(value, int):
            problem = f"is {value}, expected an int of 64 bits."
        problem = problem or f"is {_shown(value)}, expected {wanted}."
        return ArgumentError(f"{self._qualname}: argument {name!r} {problem}")

    def failed(self, status: int, message: str) -> Exception:
        """Return the error for a call that failed in the operator's library."""
        kind = {_REFUSED: ArgumentError, _OUT_OF_MEMORY: MemoryError}.get(status, OpsmithError)
        return kind(message)

    def no_result(self, shape: str, reason: str) -> MemoryError:
        """Return the error for a call whose result could not be allocated."""
        return MemoryError(
            f"{self._qualname}: a result of shape {shape} could not be allocated: {reason}"
        )


def _shown(value: Any) -> str:
    """Describe the value that was passed, briefly enough for a message."""
    if value is None:
        return "None"
    if _arrays.is_array(value):
        shape = ", ".join(map(str, value.shape)) + ("," if len(value.shape) == 1 else "")
        return f"{_arrays.called(value)} of shape ({shape})"
    kind = type(value).__name__
    if isinstance(value, bool | int | float | complex | str):
        text = repr(value)
        return f"{text if len(text) <= 60 else text[:57] + '...'} ({kind})"
    return f"of type {kind}"
