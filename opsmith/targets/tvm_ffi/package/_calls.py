"""Give the results of a call in the library of its arguments, and refuse what DLPack passes on."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm_ffi

from opsmith.targets.hosted.package import _arrays


def converted(result: Any, *given: Any) -> Any:
    """Return a tensor of tvm-ffi as an array of the library of the first array that was given."""
    if type(result) is not tvm_ffi.Tensor:  # PyTorch's, which tvm-ffi itself makes
        return result
    like = next((one for one in _each(given) if _arrays.is_array(one)), None)
    return (_arrays.importer(like) or np.from_dlpack)(result)


def shows_more(array: Any) -> bool:
    """Return whether a tensor of PyTorch is more than its memory, which is all that is passed.

    It may have a gradient, or be conjugated or negated when it is read.
    """
    if getattr(array, "requires_grad", False):
        return True
    is_conj = getattr(array, "is_conj", None)
    return is_conj is not None and (is_conj() or array.is_neg())


def refuse(qualname: str, written: bool, **given: Any) -> None:
    """Raise for the first tensor that `shows_more`, or that is `written` and cannot be.

    Raises:
        ValueError: there is one.
    """
    for name, value in given.items():
        for one in _each([value]):
            if shows_more(one) or (written and not _arrays.writable(one)):
                why = _arrays.why_not(one, written)
                raise ValueError(f"{qualname}: argument {name!r} {why}")


def _each(values: Any) -> list[Any]:
    """Return the arrays among values, of which some may be lists."""
    each = [one if isinstance(one, list | tuple) else [one] for one in values]
    return [one for several in each for one in several if one is not None]
