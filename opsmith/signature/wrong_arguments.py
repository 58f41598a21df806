"""Word the errors about arguments that do not fit a signature, the same for every caller in Python.

Exported packages carry a copy of this module, so it imports nothing of opsmith.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

#: Largest number of characters of a text that a message shows; of a longer text it says how many.
_LONGEST = 60


def wrong_call(
    names: Sequence[str],
    positional: int,
    optional: Collection[str],
    count: int,
    keywords: Iterable[str],
) -> str:
    """Describe a call with too many, unknown, repeated or missing arguments, as a clause.

    Args:
        names: the names of the parameters, in order.
        positional: number of parameters that can be passed by position; they come first.
        optional: the names of parameters that have a default.
        count: number of arguments that were passed by position.
        keywords: the names of arguments that were passed by name.
    """
    if count > len(names):
        return f"takes {len(names)} arguments, got {count}."
    if count > positional:
        name = names[positional]
        return f"argument {name!r} must be given by name: {name}=..."
    given = set(names[:count])
    for name in keywords:
        if name not in names:
            return f"has no argument {name!r}; there are {', '.join(names)}."
        if name in given:
            return f"argument {name!r} is given twice."
        given.add(name)
    missing = next(name for name in names if name not in given and name not in optional)
    return f"argument {missing!r} is missing."


def wrong_value(name: str, shown: str, expected: str) -> str:
    """Describe an argument of another type, as a clause from its name on; `show` gives `shown`."""
    return f"{name!r} is {shown}, expected {expected}."


def too_large(name: str, number: int) -> str:
    """Describe an int that does not fit 64 bits, as a clause from its name on."""
    return wrong_value(name, show(number).removesuffix(" (int)"), "an int of 64 bits")


def show(value: object) -> str:
    """Describe a value that is no tensor, short enough for a message."""
    if value is None:
        return "None"
    kind = type(value).__name__
    if isinstance(value, str) and len(value) > _LONGEST:
        return f"a {kind} of {len(value)} characters"
    if isinstance(value, int) and value.bit_length() > 2 * _LONGEST:
        return f"an {kind} of {value.bit_length()} bits"
    if isinstance(value, bool | int | float | complex | str):
        return f"{value!r} ({kind})"
    return f"of type {kind}"
