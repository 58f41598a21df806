"""Read a call's arguments by the names in the signature."""

from __future__ import annotations

from collections.abc import Callable

from opsmith.errors import ArgumentError
from opsmith.signature.model import Signature
from opsmith.signature.parameters import NO_DEFAULT
from opsmith.signature.wrong_arguments import wrong_call
from opsmith.untyped import Args, Arguments, Value


def named(signature: Signature) -> Callable[[Args, Arguments], dict[str, Value]]:
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

    def arguments(args: Args, kwargs: Arguments) -> dict[str, Value]:
        if len(args) == len(names) == positional and not kwargs:
            return dict(zip(names, args, strict=True))
        given = dict(zip(names, args, strict=False))
        complete = {**defaults, **given, **kwargs}
        # torch.compile traces this, and knows few methods of `dict.keys()`.
        if (
            len(args) > positional
            or len(complete) != len(names)
            or any(name in given or name not in known for name in kwargs)
        ):
            wrong = wrong_call(names, positional, defaults, len(args), kwargs)
            raise ArgumentError(f"{qualname}: {wrong}")
        return {name: complete[name] for name in names}

    return arguments
