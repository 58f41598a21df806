"""Plan calls in which one tensor has a given number of elements, or a few more."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.cases.case import Case, show_shape
from opsmith.checks.cases.sampling import cases
from opsmith.checks.cases.search import search
from opsmith.checks.cases.values import fill
from opsmith.checks.cases.wanted import Wanted
from opsmith.errors import OpsmithError
from opsmith.operators.core.arguments import DTYPES, dtype_name
from opsmith.signature import Parameter, Signature, TensorInfo, bind, result_shapes
from opsmith.signature.constraints import ValueRange
from opsmith.signature.parameters import TensorType
from opsmith.signature.sizes import expressions
from opsmith.signature.sizes.expressions import Binary, Name
from opsmith.signature.sizes.shapes import Fixed, Variadic
from opsmith.signature.solving.fitting import Fitting

#: Values repeat after a prime number of elements, so that elements 2**31 or 2**32 apart differ.
PERIOD = 1_000_003
#: How far above a size the next is looked for that a condition allows.
_FARTHEST = 4096


@dataclass(frozen=True)
class LargeCall:
    """A large call.

    Attributes:
        small: a small call, which supplies all other arguments.
        elements: the number of elements of the tensor that was made large.
        product: its number of elements in terms of the declaration; empty where it has none.
        shapes: the shapes of all tensor arguments that are present.
        results: the shapes and dtypes of the results, where the declaration says them.
    """

    small: Case
    elements: int
    product: str
    shapes: Mapping[str, tuple[int, ...]]
    results: tuple[tuple[tuple[int, ...], str], ...]
    dims: Mapping[str, int]

    def describe(self) -> str:
        """Describe the call in one line."""
        shown = []
        for name, value in self.small.values.items():
            if isinstance(value, Tensor):
                shown.append(f"{name}: {dtype_name(value.dtype)} {show_shape(self.shapes[name])}")
            else:
                shown.append(f"{name}={value!r}")
        return ", ".join(shown)

    def values(self, seed: int) -> dict[str, Any]:
        """Return the arguments, as they are for calls with few elements."""
        made = dict(self.small.values)
        for number, (name, shape) in enumerate(self.shapes.items()):
            made[name] = whole(self.pattern(name, seed + number), shape)
        return made

    def describe_large(self) -> str:
        """Name the tensors that are as large."""
        several = len(self.results) > 1
        names = [one.name for one in self.small.signature.results] if several else ["the result"]
        shapes = [shape for shape, _ in self.results]
        tensors = [*self.shapes.items(), *zip(names, shapes, strict=False)]
        large = [name for name, shape in tensors if math.prod(shape) >= self.elements]
        return f"{', '.join(large)} of {self.elements:,} elements"

    def pattern(self, name: str, seed: int) -> Tensor:
        """Return the elements of an argument; the first `PERIOD` of them, which the others repeat.

        Few integers are as large as the declaration allows, since they may be indices.
        """
        parameter = self.small.signature.by_name[name]
        old: Tensor = self.small.values[name]
        count = math.prod(self.shapes[name])
        if name in _kept(self.small.signature):
            return old
        if self.small.origin:  # the author's values may mean what no sample does
            turns = math.ceil(min(count, PERIOD) / max(old.numel(), 1))
            return old.flatten().repeat(turns)[: min(count, PERIOD)]
        highest = bool(parameter.ranges) and not old.is_floating_point()
        drawn = (PERIOD,) if highest or count > PERIOD else self.shapes[name]
        dtype = dtype_name(old.dtype)
        values = fill(parameter, drawn, dtype, seed, self.dims, self.small.values)
        return values.topk(count).values if count < values.numel() else values


def whole(pattern: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor that repeats a pattern."""
    count = math.prod(shape)
    if pattern.numel() == count:
        return pattern.view(shape)
    memory = torch.empty(count, dtype=pattern.dtype)
    turns = count // PERIOD * PERIOD
    memory[:turns].view(-1, PERIOD).copy_(pattern)
    memory[turns:] = pattern[: count - turns]
    return memory.view(shape)


def small_case(
    signature: Signature, wanted: Wanted, takes: Callable[[Case], bool] = lambda _: True
) -> Case | None:
    """Sample a small call that `takes` takes, with as many tensors as there may be."""
    found: list[Case] = []
    search(
        cases(signature, wanted).filter(takes),
        found.append,
        examples=6,
        seed=zlib.crc32(f"{wanted.seed} large {wanted.dtype}".encode()),
        seconds=5.0,
        size=lambda case: case.numel,
    )
    return max(found, key=lambda case: len(list(case.tensors())), default=None)


def large_calls(
    small: Case, *ranges: tuple[int, int], results: bool = True
) -> Iterator[list[LargeCall | None]]:
    """Yield calls for every argument, and result, that can have so many elements.

    Args:
        ranges: the least numbers of elements, and the numbers that they stay below; a call for
            each, and `None` where there is none. There is one for the first.
        results: whether results are made large.
    """
    signature = small.signature
    present = [p for p in signature.tensors if p.is_tensor and small.values[p.name] is not None]
    types = [p.tensor_type for p in present]
    types += [one.tensor_type for one in signature.results if results and _sizes_results(signature)]
    taken = []
    for type_ in types:
        if type_ is None or type_.shape is None:
            continue
        first, *others = (_large_call(small, present, type_, *ends) for ends in ranges)
        if first is not None and first.shapes not in taken:
            taken.append(first.shapes)
            yield [first, *others]


def _large_call(
    small: Case, present: list[Parameter], type_: TensorType, least: int, below: int
) -> LargeCall | None:
    """Enlarge the dimensions of a tensor alike, until it has `least` elements."""
    assert type_.shape is not None
    signature = small.signature
    bindings = bind(signature, small.described())
    dims, variadic = dict(bindings.dims), dict(bindings.variadic)
    kept = _kept(signature)
    stay = {n for p in present if p.name in kept for n in _read(p)}
    fitting = Fitting(signature)
    plain = [name for name in _plain(type_) if name not in stay]
    # Keep small what a condition reads, beside a dimension that none reads.
    names = [name for name in plain if not fitting.reads(name)] or plain
    runs = [dim.name for dim in type_.shape.dims if isinstance(dim, Variadic) and dim.name]
    count = len(names) + sum(len(variadic[run]) for run in runs)
    side, elements = 1, 0
    while count and elements < least:
        if elements:
            side = max(side + 1, math.ceil(side * (least / elements) ** (1 / count)))
        for name in names:
            upwards = range(side, side + _FARTHEST)
            dims[name] = next((size for size in upwards if fitting.fits(name, size, {}, {})), 0)
        for run in runs:
            variadic[run] = tuple(side for _ in variadic[run])
        before = elements
        elements = math.prod(_shape(type_, (), dims, variadic, small.values))
        if elements <= before:
            return None
    if not count or elements >= below:
        return None
    shapes = {}
    for parameter in present:
        have = tuple(small.values[parameter.name].shape)
        shapes[parameter.name] = have
        if (own := parameter.tensor_type) is not None and own.shape is not None:
            shapes[parameter.name] = _shape(own, have, dims, variadic, small.values)
        if parameter.name in kept and shapes[parameter.name] != have:
            return None
    if not all(fitting.fits(name, dims[name], dims, small.values) for name in dims):
        return None
    described = small.described()
    for name, shape in shapes.items():
        described[name] = TensorInfo(shape, described[name].dtype)
    try:
        bound = bind(signature, described)
        sizes = result_shapes(signature, bound, small.values) if _sizes_results(signature) else ()
    except (OpsmithError, ValueError):
        return None
    dtypes = [str(signature.dtype_in(r.tensor_type, bound.dtype)) for r in signature.results]
    results = tuple(zip(map(tuple, sizes), dtypes, strict=False))
    factors = [dim.expression for dim in type_.shape.dims if isinstance(dim, Fixed)]
    known = len(factors) == len(type_.shape.dims)
    product = expressions.text(reduce(partial(Binary, "*"), factors)) if known else ""
    return LargeCall(small, elements, product, shapes, results, dims)


def bytes_of(call: LargeCall) -> list[int]:
    """Return the bytes of each argument in `shapes`, and of each result."""
    values = call.small.values
    given = [math.prod(s) * values[name].element_size() for name, s in call.shapes.items()]
    return given + [math.prod(s) * DTYPES[dtype].itemsize for s, dtype in call.results]


def _sizes_results(signature: Signature) -> bool:
    """Return whether the sizes of the arguments decide those of the results."""
    return signature.shaped and not signature.data_dependent


def _kept(signature: Signature) -> set[str]:
    """Return the tensors whose values depend on each other, so that none may be drawn anew."""
    kept = set()
    for parameter in signature.tensors:
        for constraint in parameter.constraints:
            if type(constraint) is not ValueRange or constraint.reads:
                kept |= {parameter.name, *constraint.reads}
    return kept


def _plain(type_: TensorType) -> list[str]:
    """Return the dimensions of a tensor that are a name alone."""
    dims = type_.shape.dims if type_.shape else ()
    fixed = [dim.expression for dim in dims if isinstance(dim, Fixed)]
    return list(dict.fromkeys(one.name for one in fixed if isinstance(one, Name)))


def _read(parameter: Parameter) -> set[str]:
    """Return the dimensions that a tensor's values depend on, and its own."""
    reads = {
        n for c in parameter.constraints for e in c.expressions() for n in expressions.names(e)
    }
    return reads | set(_plain(parameter.tensor_type) if parameter.tensor_type else ())


def _shape(
    type_: TensorType,
    have: tuple[int, ...],
    dims: Mapping[str, int],
    variadic: Mapping[str, tuple[int, ...]],
    scalars: Mapping[str, Any],
) -> tuple[int, ...]:
    """Return the shape of a tensor; `have` is its own, for sizes that have no name."""
    assert type_.shape is not None
    sizes: list[int] = []
    taken = 0
    for dim in type_.shape.dims:
        if isinstance(dim, Variadic):
            width = max(len(have) - type_.shape.rank, 0)
            sizes += have[taken : taken + width] if dim.name is None else variadic[dim.name]
            taken += width
            continue
        if isinstance(dim, Fixed):
            sizes.append(expressions.evaluate(dim.expression, dims, scalars))
        else:
            sizes.append(have[taken] if have else 1)
        taken += 1
    return tuple(sizes)
