"""Suggest a correction for common slips in a declaration."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable
from typing import TypeVar

from opsmith.errors import DeclarationError

_Function = TypeVar("_Function", bound=Callable[..., object])


def annotation_slip(error: BaseException) -> str:
    """Describe the slip in a jaxtyping annotation that raised `error`; empty if it is unknown.

    Args:
        error: the error of evaluating an annotation, or of importing the file that has it.
    """
    text = str(error)
    # The messages of jaxtyping for "N, C", and for "N", "C".
    if isinstance(error, ValueError) and re.search("not commas|an array type and a shape", text):
        return 'a shape is one text, its axes separated by spaces, as in Float[Tensor, "N C"]'
    if isinstance(error, NameError) or (
        isinstance(error, AttributeError | ImportError) and "jaxtyping" in text
    ):
        from difflib import get_close_matches

        import jaxtyping

        written = re.search(r"'(\w+)'", text)
        dtypes = [name for name in dir(jaxtyping) if name[:1].isupper()]
        close = get_close_matches(written[1], dtypes, 1, 0.75) if written else []
        if written and written[1] in dtypes:
            return f"it is not imported: from jaxtyping import {written[1]}"
        if written and close:
            return f"{written[1]!r} is no dtype of jaxtyping; did you mean {close[0]}?"
    return ""


def refuse_unknown_keywords(label: Callable[..., str]) -> Callable[[_Function], _Function]:
    """Have a function refuse unknown keywords with the operator's name and the nearest keyword.

    Args:
        label: returns the beginning of the message, given the positional arguments of a call.
    """

    def decorate(function: _Function) -> _Function:
        keywords = [
            parameter.name
            for parameter in inspect.signature(function).parameters.values()
            if parameter.kind is not inspect.Parameter.POSITIONAL_ONLY
        ]

        @functools.wraps(function)
        def checked(*args: object, **given: object) -> object:
            if not given.keys() <= set(keywords):
                unknown = next(name for name in given if name not in keywords)
                raise DeclarationError(f"{label(*args)}: {_no_keyword(unknown, keywords)}")
            return function(*args, **given)

        return checked  # type: ignore[return-value]  # has the signature of `function`

    return decorate


def _no_keyword(unknown: str, keywords: Iterable[str]) -> str:
    from difflib import get_close_matches

    known = [name for name in keywords if name != "self"]
    close = get_close_matches(unknown, known, 1)
    if close:
        return f"there is no argument {unknown!r}; did you mean {close[0]}=?"
    return f"there is no argument {unknown!r}; there are {', '.join(known)}"
