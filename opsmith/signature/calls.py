"""Read a call's arguments by the names in the signature."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from opsmith.errors import ArgumentError
from opsmith.signature.model import Signature
from opsmith.signature.parameters import NO_DEFAULT


def named(signature: Signature) -> Callable[[tuple[Any, ...], Mapping[str, Any]], dict[str, Any]]:
    """Return a function that maps ``(args, kwargs)`` of a call to its arguments by name.

    It fills in defaults: the dispatcher does not pass on arguments that equal their default.
    """
    names = [parameter.name for parameter in signature.parameters]
    defaults = {
        parameter.name: parameter.default
        for parameter in signature.parameters
        if parameter.default is not NO_DEFAULT
    }
    known = frozenset(names)
    positional = sum(not parameter.keyword_only for parameter in signature.parameters)
    qualname = signature.qualname

    def arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if len(args) == len(names) == positional and not kwargs:
            return dict(zip(names, args, strict=True))
        if len(args) > len(names):
            raise ArgumentError(f"{qualname}: takes {len(names)} arguments, got {len(args)}.")
        if len(args) > positional:
            raise ArgumentError(
                f"{qualname}: argument {names[positional]!r} must be given by name: "
                f"{names[positional]}=..."
            )
        given = dict(zip(names, args, strict=False))
        for name in kwargs:
            if name not in known:
                raise ArgumentError(
                    f"{qualname}: has no argument {name!r}; there are {', '.join(names)}."
                )
            if name in given:
                raise ArgumentError(f"{qualname}: argument {name!r} is given twice.")
        complete = {**defaults, **given, **kwargs}
        missing = [name for name in names if name not in complete]
        if missing:
            raise ArgumentError(f"{qualname}: argument {missing[0]!r} is missing.")
        return {name: complete[name] for name in names}

    return arguments
