"""Sizes that the tensors at one place of several lists share: ``?N`` and ``?*S``.

Such a name stands for a size of each place, which no call binds as a whole: no other size, result
or condition reads it. The generated C++ makes the same comparisons, with the same messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NoReturn

from opsmith.signature.model import Signature
from opsmith.signature.parameters import Parameter
from opsmith.signature.sizes.expressions import AnySize
from opsmith.signature.sizes.shapes import Shape, Unnamed, Variadic, show_sizes

#: A condition (perhaps symbolic), and a function that returns the message if it fails.
Found = tuple[AnySize, Callable[[], str]]


def item_dims(shape: Shape | None) -> Iterator[tuple[int, Unnamed | Variadic]]:
    """Yield the dimensions that each place of lists has of its own, with their axes."""
    for axis, dim in shape.axes() if shape is not None else ():
        if isinstance(dim, Unnamed | Variadic) and dim.item is not None:
            yield axis, dim


def items_of(parameter: Parameter) -> tuple[str, ...]:
    """Return the names of the sizes that a list shares with others, place by place."""
    return tuple(dict.fromkeys(str(dim.item) for _, dim in item_dims(parameter.shape)))


def item_names(signature: Signature, *, several: bool = False) -> tuple[str, ...]:
    """Return the names of all sizes that lists share place by place.

    Args:
        several: whether to return only the names that stand for any number of dimensions.
    """
    dims = [dim for parameter in signature.tensors for _, dim in item_dims(parameter.shape)]
    found = [str(dim.item) for dim in dims if isinstance(dim, Variadic) or not several]
    return tuple(dict.fromkeys(found))


def lists_like(parameter: Parameter, others: Iterable[Parameter]) -> tuple[str, ...]:
    """Return the lists that have as many tensors as `parameter` if all these are given.

    Itself is among them: lists share their length with those that they share a size with.
    """
    names = {parameter.name: set(items_of(parameter))}
    names |= {p.name: set(items_of(p)) for p in others if p.is_tensor_list}
    found, known = {parameter.name}, names[parameter.name]
    while more := {name for name in names.keys() - found if names[name] & known}:
        found |= more
        known = known.union(*(names[name] for name in more))
    return tuple(name for name in names if name in found)


class ItemSizes:
    """Compares lists place by place. The first list of a call that has a name fixes its sizes."""

    def __init__(self) -> None:
        self._lists: dict[str, tuple[str, int]] = {}
        self._sizes: dict[tuple[str, int], tuple[AnySize, ...]] = {}

    def of_list(self, parameter: Parameter, count: int) -> Iterator[Found]:
        """Yield what must hold for the number of tensors in a list."""
        for _, dim in item_dims(parameter.shape):
            first, expected = self._lists.setdefault(str(dim.item), (parameter.name, count))
            yield (
                count == expected,
                lambda dim=dim, first=first, expected=expected: (  # type: ignore[misc]
                    f"argument {parameter.name!r} has {count} tensors, expected {expected}: it "
                    f"shares {dim} with {first!r}, place by place."
                ),
            )

    def of_item(
        self, parameter: Parameter, place: int, shape: Sequence[AnySize]
    ) -> Iterator[Found]:
        """Yield what must hold for the sizes of the tensor at one place of a list."""
        declared = parameter.shape
        for axis, dim in item_dims(declared):
            assert declared is not None
            start = axis if axis >= 0 else len(shape) + axis
            width = len(shape) - declared.rank if isinstance(dim, Variadic) else 1
            sizes = tuple(shape[start : start + width])
            expected = self._sizes.setdefault((str(dim.item), place), sizes)

            def message(
                dim: Unnamed | Variadic = dim,
                start: int = start,
                sizes: tuple[AnySize, ...] = sizes,
                expected: tuple[AnySize, ...] = expected,
            ) -> str:
                found, wanted = (
                    (f"dimensions from {start} ({dim}) are {show_sizes(sizes)}", show_sizes)
                    if isinstance(dim, Variadic)
                    else (f"dimension {start} ({dim}) is {sizes[0]}", lambda one: str(one[0]))
                )
                return (
                    f"argument '{parameter.name}[{place}]' does not fit {parameter.tensor_type}: "
                    f"{found}, expected {wanted(expected)}, as in "
                    f"'{self._lists[str(dim.item)][0]}[{place}]'."
                )

            yield len(sizes) == len(expected), message
            for size, want in zip(sizes, expected, strict=False):
                yield size == want, message


def check_items(signature: Signature, refuse: Callable[[str], NoReturn]) -> None:
    """Call `refuse` with the first wrong use of a size that may differ between a list's items."""
    written: dict[str, str] = {}
    for parameter in signature.tensors:
        owner = f"parameter '{parameter.name}: {parameter.annotation}'"
        for _, dim in item_dims(parameter.shape):
            name, text = str(dim.item), str(dim)
            plain = text.removeprefix("?")
            if not parameter.is_tensor_list:
                refuse(
                    f"{owner}: '{text}' is a size that lists share place by place, and this is one "
                    f"tensor; write '{plain}'"
                )
            if written.setdefault(name, text) != text:
                refuse(
                    f"{owner}: {name!r} is one dimension ('?{name}') and any number of dimensions "
                    f"('?*{name}'); use two names"
                )
            if name in signature.dim_sources:
                refuse(
                    f"{owner}: '{text}' differs from place to place, and {name!r} without '?' is "
                    f"one size of the call ({signature.dim_sources[name]!r} has it); use two names"
                )
            if name in signature.by_name:
                refuse(f"{owner}: {name!r} is both a parameter and a dimension; rename one of them")
    for result in signature.results:
        for _, dim in item_dims(result.shape):
            refuse(
                f"the result {result.type}: '{dim}' is a size that lists of arguments share place "
                "by place; return the tensors of a list as list[Tensor], and write register_fake"
            )


def item_hint(signature: Signature, name: str) -> str:
    """Return a hint that `name` differs from place to place of a list; else empty."""
    for parameter in signature.tensors:
        if name in items_of(parameter):
            return (
                f" ({name!r} is no size of the call: each place of {parameter.name!r} has its own)"
            )
    return ""
