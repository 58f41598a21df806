"""Describe a function's parameters, and write the messages of refused calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from opsmith.errors import ArgumentError, OpsmithError
from opsmith.signature.wrong_arguments import show, too_large, wrong_call, wrong_value
from opsmith.targets.hosted.package import _arrays

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
class FunctionParameter:
    """An argument of a function.

    Attributes:
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
    """

    def __init__(self, qualname: str, parameters: Sequence[FunctionParameter]) -> None:
        self._qualname = qualname
        self._parameters = parameters

    def call(self, args: Sequence[Any], keywords: Sequence[str]) -> ArgumentError:
        """Return the error for a call with too many, missing or unknown arguments."""
        wrong = wrong_call(
            [parameter.name for parameter in self._parameters],
            sum(not parameter.keyword_only for parameter in self._parameters),
            [parameter.name for parameter in self._parameters if parameter.has_default],
            len(args),
            keywords,
        )
        return ArgumentError(f"{self._qualname}: {wrong}")

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
        if problem is not None:
            wrong = f"{name!r} {problem}"
        elif kind == "integer" and isinstance(value, int):
            wrong = too_large(name, value)
        else:
            wrong = wrong_value(name, _shown(value), wanted)
        return ArgumentError(f"{self._qualname}: argument {wrong}")

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
    if _arrays.is_array(value):
        shape = ", ".join(map(str, value.shape)) + ("," if len(value.shape) == 1 else "")
        return f"{_arrays.called(value)} of shape ({shape})"
    return show(value)
