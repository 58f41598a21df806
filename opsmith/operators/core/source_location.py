"""Find where a user's function is written, for messages."""

from __future__ import annotations

import functools
import inspect
import os
import traceback
import warnings
from types import CodeType


def code_of(function: object) -> CodeType | None:
    """Return the code of a function as it was written, below its decorators; `None` for a builtin.

    The reference of an adopted operator calls the operator, and stands for the user's function. An
    object of a user's class stands for its method `__call__`.
    """
    written = inspect.unwrap(function) if callable(function) else function
    while isinstance(written, functools.partial):
        written = written.func
    if hasattr(written, "__code__") or type(written).__module__.split(".")[0] == "torch":
        return getattr(written, "__code__", None)
    return getattr(type(written).__call__, "__code__", None) if callable(written) else None


def where_written(function: object) -> str:
    """Return the file and line of a function, below its decorators; empty for a builtin."""
    code = code_of(function)
    return "" if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def line_of(error: BaseException, function: object) -> str:
    """Return the last line in a function's file on the way to an error, in brackets; else empty."""
    code = code_of(function)
    if code is None:
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == code.co_filename]
    return f" ({shown_path(code.co_filename)}:{lines[-1]})" if lines else ""


def shown_path(file: str) -> str:
    """Return a path, or path and line, relative to the working directory if it lies below it."""
    relative = os.path.relpath(file)
    return file if relative.startswith(os.pardir) else relative


def warn_of_a_clash(qualname: str, earlier: object, later: object, *, stacklevel: int) -> None:
    """Warn if another function declared a name before; a notebook may declare its own again."""
    again = getattr(earlier, "__name__", "") == getattr(later, "__name__", "")
    own = (later.__module__, "__main__") if again else ("__main__",)
    if earlier is None or earlier.__module__ in own:
        return
    first, second = (
        f"{one.__module__} ({shown_path(place)})"
        if (place := where_written(one))
        else one.__module__
        for one in (earlier, later)
    )
    warnings.warn(
        f"{qualname} was declared in {first} and is now declared again in {second}; "
        "the later one takes its place",
        stacklevel=stacklevel,
    )
