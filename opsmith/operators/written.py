"""Where something of the user's is written, for messages."""

from __future__ import annotations


def where_written(function: object) -> str:
    """The file and line of a function; empty for what has none, as a builtin."""
    code = getattr(function, "__code__", None)
    return "" if code is None else f"{code.co_filename}:{code.co_firstlineno}"
