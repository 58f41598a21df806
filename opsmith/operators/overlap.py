"""Arguments that share memory with one that the call writes into; in C++ adapters do the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from opsmith.errors import ArgumentError
from opsmith.signature import Parameter, Signature

KeepApart = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""From arguments by name to the same with copies in place of some."""


def keep_apart(signature: Signature) -> KeepApart:
    """What makes sure that a call changes nothing that it only reads.

    A tensor that is only read is copied where it spans memory that the call writes into, as a
    compiler does that makes calls functional. Two that are written must not share elements.

    Args:
        signature: the operator's.

    Returns:
        A function of the call's arguments; it raises `ArgumentError`.
    """
    written = [parameter for parameter in signature.mutated if parameter.is_tensor]
    read = [parameter for parameter in signature.tensors if not parameter.mutated]

    def apart(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        into = [(p, arguments[p.name]) for p in written if arguments[p.name] is not None]
        for position, (parameter, tensor) in enumerate(into):
            for other, earlier in into[:position]:
                if _share_elements(tensor, earlier):
                    raise _refused(signature, other, parameter)
        kept = dict(arguments)
        spans = [_span(tensor) for _, tensor in into]
        for parameter in read:
            value = arguments[parameter.name]
            if isinstance(value, Tensor):
                kept[parameter.name] = _away_from(spans, value)
            elif value is not None:
                kept[parameter.name] = [_away_from(spans, item) for item in value]
        return kept

    return apart if written else lambda arguments: arguments


def _refused(signature: Signature, one: Parameter, other: Parameter) -> ArgumentError:
    return ArgumentError(
        f"{signature.qualname}: arguments {one.name!r} and {other.name!r} are both written, but "
        "share memory. Pass a clone."
    )


def _span(tensor: Tensor) -> tuple[int, int]:
    """The addresses of the first byte that a tensor's elements take, and of that after the last."""
    start = tensor.data_ptr()
    if not tensor.numel():
        return start, start
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((size - 1) * stride for size, stride in steps)
    return start, start + (last + 1) * tensor.element_size()


def _meet(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return max(one[0], other[0]) < min(one[1], other[1])


def _away_from(spans: list[tuple[int, int]], tensor: Tensor) -> Tensor:
    own = _span(tensor)
    return tensor.clone() if any(_meet(own, span) for span in spans) else tensor


def _share_elements(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors share elements, as far as that is easily said."""
    if not _meet(_span(one), _span(other)):
        return False
    if one.is_contiguous() and other.is_contiguous():
        return True
    alike = one.shape == other.shape and one.stride() == other.stride()
    return alike and one.data_ptr() == other.data_ptr()
