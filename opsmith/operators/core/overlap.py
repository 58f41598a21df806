"""Handle arguments that share memory with an argument that the call writes into.

C++ adapters do the same: see ``kernels/include/opsmith/detail/overlap.h``.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

from torch import Tensor

from opsmith.errors import ArgumentError
from opsmith.operators.core.arguments import each_tensor, map_tensors
from opsmith.signature import Signature
from opsmith.signature.sizes.shapes import show_sizes
from opsmith.untyped import Arguments, Value

KeepApart = Callable[[Arguments], Arguments]
"""Maps arguments by name to the same arguments, some of them replaced by copies."""


def keep_apart(signature: Signature) -> KeepApart:
    """Return a function that copies read-only arguments which the call would overwrite.

    A tensor that is only read is copied if its address range meets the range of a written tensor;
    a compiler that functionalizes calls does the same. Two written tensors must not share elements.

    Returns:
        A function of the call's arguments; it raises `ArgumentError` if two written arguments
        overlap. `refuse_overlap` compares the tensors of one list.
    """
    written = signature.mutated
    read = [parameter for parameter in signature.tensors if not parameter.mutated]

    def apart(arguments: Arguments) -> Arguments:
        into: list[tuple[str, Value, _Spans]] = []
        for parameter in written:
            value = arguments[parameter.name]
            for name, tensor in _items(parameter.name, value):
                for other, earlier, spans in into:
                    shared = spans.first_shared(tensor)
                    if shared is not None:
                        raise _refused(signature, _item(other, earlier, shared), name)
            into.append((parameter.name, value, _Spans(each_tensor(value))))
        kept = dict(arguments)
        every = [spans for _, _, spans in into]
        for parameter in read:
            kept[parameter.name] = map_tensors(
                arguments[parameter.name], functools.partial(_away_from, every)
            )
        return kept

    return apart if written else lambda arguments: arguments


def _items(name: str, value: object) -> list[tuple[str, Tensor]]:
    """Return the tensors of an argument with their names: ``x``, or ``xs[0]`` in a list."""
    return [(_item(name, value, place), one) for place, one in enumerate(each_tensor(value))]


def _item(name: str, value: object, place: int) -> str:
    return f"{name}[{place}]" if isinstance(value, list | tuple) else name


def _refused(signature: Signature, one: str, other: str) -> ArgumentError:
    return ArgumentError(
        f"{signature.qualname}: arguments {one!r} and {other!r} are both written, but "
        "share memory. Pass a clone."
    )


class _Spans:
    """The address ranges of written tensors, in order.

    So a tensor of a long list is not compared with each of the others.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = tensors
        spans = ((*_span(tensor), place) for place, tensor in enumerate(tensors))
        self._spans = sorted(span for span in spans if span[0] < span[1])
        #: The furthest end up to each span.
        self._reached = list(itertools.accumulate((end for _, end, _ in self._spans), max))

    def meeting(self, tensor: Tensor) -> Iterator[int]:
        """Yield the places of the tensors whose address ranges meet that of a tensor."""
        start, stop = _span(tensor)
        if start == stop:
            return
        for at in range(bisect.bisect_left(self._spans, (stop,)) - 1, -1, -1):
            if self._reached[at] <= start:
                return
            _, end, place = self._spans[at]
            if end > start:
                yield place

    def first_shared(self, tensor: Tensor, before: int | None = None) -> int | None:
        """Return the first place whose tensor shares elements with a tensor.

        Args:
            before: compare only tensors in places before this place; by default compare all.
        """
        places = sorted(p for p in self.meeting(tensor) if before is None or p < before)
        return next((p for p in places if _share_elements(tensor, self._tensors[p])), None)


def _span(tensor: Tensor) -> tuple[int, int]:
    """Return the addresses of a tensor's first byte and of the byte after its last."""
    start = tensor.data_ptr()
    if not tensor.numel():
        return start, start
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((size - 1) * stride for size, stride in steps)
    return start, start + (last + 1) * tensor.element_size()


def _away_from(every: Sequence[_Spans], tensor: Tensor) -> Tensor:
    meets = any(True for spans in every for _ in spans.meeting(tensor))
    return tensor.clone() if meets else tensor


def refuse_overlap(signature: Signature, name: str, value: object) -> None:
    """Refuse a written argument in which two elements share an address.

    Args:
        value: a tensor, a list of tensors, or `None`.

    Raises:
        ArgumentError: two elements of a tensor, or of two tensors of a list, share an address.
    """
    for item, tensor in _items(name, value):
        if not tensor.is_contiguous() and _overlaps_itself(tensor):
            raise _refused_alone(signature, item, tensor)
    if isinstance(value, list | tuple):
        spans = _Spans(value)
        for place, tensor in enumerate(value):
            shared = spans.first_shared(tensor, place)
            if shared is not None:
                raise _refused(signature, f"{name}[{shared}]", f"{name}[{place}]")


def _refused_alone(signature: Signature, name: str, tensor: Tensor) -> ArgumentError:
    why = f"shape {show_sizes(tensor.shape)} with strides {show_sizes(tensor.stride())}"
    for axis, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            why = f"dimension {axis} was expanded to {size}"
            break
    return ArgumentError(
        f"{signature.qualname}: argument {name!r} is written, but its elements share memory: "
        f"{why}. Pass a clone."
    )


_Step = tuple[int, int]
"""The length of a step, and the largest number of times it may be taken."""


def _overlaps_itself(tensor: Tensor) -> bool:
    """Return whether two elements of a non-contiguous tensor share an address."""
    sizes = zip(tensor.stride(), tensor.shape, strict=True)
    steps = sorted(((stride, size - 1) for stride, size in sizes if size > 1), reverse=True)
    reach, nested = 0, True
    for stride, most in reversed(steps):
        nested = nested and stride > reach
        reach += stride * most
    if nested:
        return False
    # Two elements share an address if steps between them cancel out: forwards at least once along
    # the largest stride in use, and in both directions along the smaller strides.
    for position, (stride, most) in enumerate(steps):
        smaller = steps[position + 1 :]
        both = [*smaller, *((-stride, most) for stride, most in smaller)]
        if _lead(-stride, [(stride, most - 1), *both]):
            return True
    return False


def _share_elements(one: Tensor, other: Tensor) -> bool:
    """Return whether a byte belongs to elements of both tensors."""
    (first, end), (other_first, other_end) = _span(one), _span(other)
    if max(first, other_first) >= min(end, other_end):
        return False
    if one.is_contiguous() and other.is_contiguous():
        return True
    size, other_size = one.element_size(), other.element_size()
    # Step from an element of one tensor to an element of the other, then to a byte that both cover.
    steps = [(1, size + other_size - 2)]
    steps += [(-t * size, n - 1) for t, n in zip(one.stride(), one.shape, strict=True)]
    steps += [(t * other_size, n - 1) for t, n in zip(other.stride(), other.shape, strict=True)]
    return _lead(one.data_ptr() - other.data_ptr() + size - 1, steps)


def _lead(target: int, steps: Sequence[_Step]) -> bool:
    """Return whether a combination of the steps adds up to the target exactly."""
    used = [(size, most) for size, most in steps if size and most > 0]
    # A backward step is no step plus an offset: start at the far end and step forwards instead.
    target -= sum(size * most for size, most in used if size < 0)
    forwards = [(abs(size), most) for size, most in used]
    while _merge(forwards):
        pass
    return _leads(target, sorted(forwards, reverse=True))


def _merge(steps: list[_Step]) -> bool:
    """Merge two steps whose sums are all multiples of the smaller; return whether there were two.

    Adjacent dimensions of a contiguous block are such steps. Merging leaves fewer combinations.
    """
    for i, (small, most) in enumerate(steps):
        for j, (large, other) in enumerate(steps):
            times, rest = divmod(large, small)
            if i != j and not rest and times <= most + 1:
                steps[i] = (small, most + times * other)
                del steps[j]
                return True
    return False


def _leads(target: int, steps: Sequence[_Step]) -> bool:
    """Do what `_lead` does, for forward steps only, sorted from the largest to the smallest."""
    if target <= 0 or not steps:
        return target == 0
    (size, most), smaller = steps[0], steps[1:]
    reach = sum(size * most for size, most in smaller)
    divisor = math.gcd(*(size for size, _ in smaller))
    for times in range(min(most, target // size), -1, -1):
        rest = target - times * size
        if rest == 0:
            return True
        if rest > reach:
            return False
        if rest % divisor == 0 and _leads(rest, smaller):
            return True
    return False
