"""Find the values and dtypes of arguments that an operator accepts."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from opsmith.drafting.dimensions import Sizes, size_of
from opsmith.drafting.subject import DraftArgument, Origin, Spec
from opsmith.kernels import HOST
from opsmith.operators.core.arguments import DTYPES
from opsmith.signature.dtypes import FLOATING as _FLOATING

#: Calls in which a result has a size of 0: how many draws look for them, and how many suffice.
_DRAWN, _ENOUGH = 400, 5
#: Exceeds every size that is tried, yet a window or border of this size is computed quickly.
_FAR = 100
_FLOATS = (-10.0, -1.0, 0.0, 0.25, 0.5, 1.0, 2.0, 10.0)
_OTHER = {torch.int32: torch.int64, torch.int64: torch.int32}
FLOATING = tuple(DTYPES[name] for name in _FLOATING)


@dataclass(frozen=True)
class ValueLimits:
    """The limits of an argument's values.

    Attributes:
        low: the smallest value, as a declaration writes it; `None` if there is no limit.
        high: the largest value, likewise.
        tried: values that the operator accepted.
        known: whether `low` and `high` were found; else only `tried` is known.
        where: the condition that the argument and a size satisfy, as ``where=`` takes it.
    """

    low: str | None
    high: str | None
    tried: tuple[Any, ...]
    known: bool = True
    where: str = ""

    @property
    def text(self) -> str:
        """Return the entry beside the type in ``Annotated``; empty without limits."""
        if self.low is None and self.high is None:
            return ""
        if self.low == "0" and self.high is not None and self.high.endswith("-1"):
            return f'Index("{self.high.removesuffix("-1")}")'
        return f"Between({_quoted(self.low)}, {_quoted(self.high)})"


def _quoted(limit: str | None) -> str:
    if limit is None:
        return "None"
    try:
        float(limit)
    except ValueError:
        return f'"{limit}"'
    return limit


def of_number(subject: Origin, argument: DraftArgument, sizes: Sizes) -> ValueLimits:
    """Find the limits of an int or float, or of each element of a list of numbers."""
    value = sizes.values[argument.name]
    listed = argument.kind in ("ints", "floats")
    count = len(value) if listed and value is not None else argument.length or 1
    if listed and value and len(set(value)) > 1:
        return ValueLimits(None, None, (value,), known=False)

    def changed(one: Any) -> dict[str, Any]:
        return {argument.name: [one] * count if listed else one}

    whole = argument.kind in ("int", "ints")
    first = value[0] if listed and value else value
    start = (1 if whole else 0.5) if first is None or first == [] else first
    # If the operator accepts a value that its fake kernel refuses, the value is a caller's mistake.
    traced = subject.results(sizes.values, "meta") is not None
    found = []
    for at in (sizes.all, *sizes.vary(2)):
        usual = _ints(max(at.values(), default=0)) if whole else _FLOATS
        tried = sorted({*usual, start})
        taken = subject.takes([sizes.at(at, changed(one)) for one in tried], traced=traced)
        found.append((at, dict(zip(tried, taken, strict=True))))
    if whole and not listed:
        divisor = _divisor(argument.name, found)
        if divisor is not None:
            return divisor
    limits = _limits(found, start, lambda one: changed(one)[argument.name])
    return limits if limits.known or value is None else pinned(value)


def _divisor(
    name: str, found: Sequence[tuple[Mapping[str, int], Mapping[int, bool]]]
) -> ValueLimits | None:
    """Return the limits of a number that has to be odd, or to divide a size; else `None`."""
    tried = tuple(k for k, taken in found[0][1].items() if taken)
    if all(k < 2 for _, several in found for k, taken in several.items() if taken):
        return None
    every = [(k, taken) for _, several in found for k, taken in several.items()]
    if all(taken == (k > 0 and k % 2 == 1) for k, taken in every):
        return ValueLimits("1", None, tried, where=f"{name} % 2 == 1")
    for size in found[0][0]:
        for form, power in ((name, 1), (f"({name}*{name})", 2)):
            if all(
                taken == (k > 0 and at[size] % k**power == 0)
                for at, several in found
                for k, taken in several.items()
            ):
                return ValueLimits("1", None, tried, where=f"{size} % {form} == 0")
    return None


def pinned(value: Any) -> ValueLimits:
    """Return limits that allow one value only, the example's."""
    only = str(value[0] if isinstance(value, list) else value)
    return ValueLimits(only, only, (value,))


def of_integers(subject: Origin, argument: DraftArgument, sizes: Sizes) -> ValueLimits:
    """Find the limits of the elements of an integer tensor."""

    def filled(value: Any, k: int) -> Any:
        if isinstance(value, list):
            return [filled(one, k) for one in value]
        return torch.full(value.shape, k, dtype=value.dtype)

    found = []
    for at in (sizes.all, *sizes.vary(2)):
        tried = _ints(max(at.values(), default=0))
        values = sizes.at(at)
        calls = [{**values, argument.name: filled(values[argument.name], k)} for k in tried]
        found.append((at, dict(zip(tried, subject.takes(calls), strict=True))))
    return _limits(found, 0, lambda one: one)


def _ints(largest: int) -> tuple[int, ...]:
    return (-_FAR, *range(-largest - 2, largest + 3), _FAR)


def _limits(
    found: Sequence[tuple[Mapping[str, int], Mapping[Any, bool]]], start: Any, made: Any
) -> ValueLimits:
    """Return the limits that explain which values were accepted at each of several sizes."""
    ends = []
    unknown = ValueLimits(None, None, (made(start),), known=False)
    for _, taken in found:
        if not taken.get(start):
            return unknown
        tried = list(taken)
        low = high = tried.index(start)
        while low > 0 and taken[tried[low - 1]]:
            low -= 1
        while high < len(tried) - 1 and taken[tried[high + 1]]:
            high += 1
        alone = sum(taken.values()) == high - low + 1
        ends.append((tried[low], tried[high], low == 0, high == len(tried) - 1, alone))
    sizes = [at for at, _ in found]
    near = [one for one, is_taken in found[0][1].items() if is_taken and abs(one) < _FAR]
    good = tuple(made(one) for one in sorted(near, key=lambda one: abs(one - start)))[:8]
    low_text = None if all(end[2] for end in ends) else _limit(sizes, [end[0] for end in ends])
    high_text = None if all(end[3] for end in ends) else _limit(sizes, [end[1] for end in ends])
    clear = all(end[4] for end in ends) and "" not in (low_text, high_text)
    return ValueLimits(low_text, high_text, good) if clear else unknown


def _limit(sizes: Sequence[Mapping[str, int]], ends: Sequence[Any]) -> str:
    """Return a number, or a size plus an offset, that equals all ends; empty if there is none."""
    if len(set(ends)) == 1:
        return str(ends[0])
    for form, value in _bounds(list(sizes[0])):
        if all(value(at) == end for at, end in zip(sizes, ends, strict=True)):
            return form
    return ""


def _bounds(names: Sequence[str]) -> Iterator[tuple[str, Callable[[Mapping[str, int]], int]]]:
    """Yield formulas for a limit: a size, the last index, the smaller of two sizes."""

    def plus(more: int) -> str:
        return f"{more:+d}" if more else ""

    def size(name: str, more: int, sign: int = 1) -> Callable[[Mapping[str, int]], int]:
        return lambda at: sign * at[name] + more

    def smaller(one: str, other: str, more: int) -> Callable[[Mapping[str, int]], int]:
        return lambda at: min(at[one], at[other]) + more

    for more in (-1, 0, 1):
        for name in names:
            yield f"{name}{plus(more)}", size(name, more)
    for name in names:
        yield f"0-{name}", size(name, 0, -1)
    for one, other in itertools.combinations(names, 2):
        for more in (-1, 0):
            yield f"min({one},{other}){plus(more)}", smaller(one, other, more)


def nonempty_results(
    subject: Origin,
    sizes: Sizes,
    scalars: Mapping[str, Sequence[Any]],
    shapes: Sequence[str | None],
) -> tuple[str, ...]:
    """Return a condition for each size of a result that is computed and must not be 0.

    Args:
        subject: the operator or function to call.
        sizes: a call of it, and its free sizes.
        scalars: the values that each argument which is no tensor may have.
        shapes: the shapes of the results, as a declaration writes them.
    """
    words = {word for shape in shapes if shape for word in shape.split()} - {*sizes.all}
    words = {word for word in words if any(mark in word for mark in "-/")}
    draw = random.Random(2)
    small = {name: [one for one in tried if _is_small(one)] for name, tried in scalars.items()}
    calls: list[tuple[dict[str, Any], dict[str, int]]] = []
    for _ in range(_DRAWN if words else 0):
        at = {name: draw.randint(1, 6) for name in sizes.all}
        chosen = {name: draw.choice(tried) for name, tried in small.items() if tried}
        try:
            found = {word: size_of(word, {**at, **chosen}) for word in words}
        except (ArithmeticError, IndexError):
            continue
        calls.append((sizes.at(at, chosen), found))

    def taken(zero: str) -> list[bool]:
        chosen = [
            call
            for call, found in calls
            if all(n == 0 if word == zero else n > 0 for word, n in found.items())
        ]
        return subject.takes(chosen[:_ENOUGH])

    if not words or sum(taken("")) < _ENOUGH:
        return ()
    refused = {word: taken(word) for word in sorted(words)}
    return tuple(
        f"{word} >= 1" for word, several in refused.items() if several and not any(several)
    )


def _is_small(number: Any) -> bool:
    several = number if isinstance(number, list | tuple) else [number]
    return all(isinstance(one, int) and abs(one) <= 3 for one in several)


def dtypes(subject: Origin, values: Mapping[str, Any]) -> tuple[torch.dtype, ...]:
    """Return the floating-point dtypes that the operator accepts, if all such tensors share one.

    A declaration carries none of which a result has a dtype that it does not know (complex32).
    """

    def is_carried(dtype: torch.dtype) -> bool:
        seen = subject.results(with_dtype(values, dtype), HOST)
        known = [one.dtype in DTYPES.values() for one in seen or () if isinstance(one, Spec)]
        return seen is not None and all(known)

    return tuple(filter(is_carried, FLOATING))


def with_dtype(values: Mapping[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Return a call with its floating-point tensors in another dtype."""

    def changed(value: Any) -> Any:
        if isinstance(value, list):
            return [changed(one) for one in value]
        if not isinstance(value, Spec | Tensor) or not value.dtype.is_floating_point:
            return value
        return replace(value, dtype=dtype) if isinstance(value, Spec) else value.to(dtype)

    return {name: changed(value) for name, value in values.items()}


def _optional_tensors(
    subject: Origin, argument: DraftArgument, values: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield calls that pass an optional tensor which `values` leaves out, if accepted."""
    on_meta = subject.results(values, "meta") is not None
    present = [one for one in values.values() if isinstance(one, Spec)]
    shapes = [one.shape for one in present]
    shapes += [(size,) for shape in shapes for size in shape]
    shapes += [shape[1:] for shape in shapes if len(shape) > 1] + [()]
    for dtype in (torch.float32, torch.int64, torch.bool):
        for shape in dict.fromkeys(shapes):
            call = {**values, argument.name: Spec(shape, dtype)}
            known = not on_meta or subject.results(call, "meta") is not None
            if known and subject.takes([call])[0]:
                yield call


def with_optional(subject: Origin, values: dict[str, Any]) -> dict[str, Any]:
    """Return the call with every optional tensor for which an accepted shape is found."""
    for one in subject.arguments:
        if one.kind == "tensor" and values[one.name] is None:
            values = next(_optional_tensors(subject, one, values), values)
    return values


def index_dtypes(subject: Origin, values: Mapping[str, Any]) -> dict[str, str]:
    """Return the dtype variable of each integer tensor that may be int32 or int64, by argument.

    Tensors that may only change together share one.
    """
    names = [name for name, value in values.items() if _is_index(value)]
    alone = [name for name in names if subject.takes([with_index_dtype(values, [name])])[0]]
    if alone:
        found = dict.fromkeys(alone, "Ids")
        if len(alone) > 1:
            found = {name: f"{name.title().replace('_', '')}Ids" for name in alone}
    elif len(names) > 1 and subject.takes([with_index_dtype(values, names)])[0]:
        found = dict.fromkeys(names, "Ids")
    else:
        return {}
    usual = subject.results(values, HOST)
    changed = subject.results(with_index_dtype(values, list(found)), HOST)
    # The result of several variables is in a dtype that follows from all, which none of them is.
    return found if len(set(found.values())) == 1 or usual == changed else {}


def _is_index(value: Any) -> bool:
    return isinstance(value, Spec | Tensor) and value.dtype in _OTHER


def with_index_dtype(values: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return a call with some integer tensors in int32 instead of int64, or the reverse."""

    def changed(value: Any) -> Any:
        other = _OTHER[value.dtype]
        return replace(value, dtype=other) if isinstance(value, Spec) else value.to(other)

    return {name: changed(value) if name in names else value for name, value in values.items()}
