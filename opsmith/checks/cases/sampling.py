"""Hypothesis strategies derived from a signature.

A draw has two parts. The *skeleton* is everything that a compiler would bake in: which optional
arguments are present, the lengths of lists, the number of dimensions that ``*names`` stand for, and
scalars. *Sizes and values* are drawn afterwards. A pair of cases shares the skeleton and differs in
sizes, as a check of dynamic shapes requires.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from typing import Any

from hypothesis import reject, strategies as st

from opsmith.checks.cases.boundary_values import takes
from opsmith.checks.cases.case import Case
from opsmith.checks.cases.dependencies import readers_last, scalars_in_shapes
from opsmith.checks.cases.draws import begin_later, floats, lay_out_case
from opsmith.checks.cases.integer_runs import NoValue
from opsmith.checks.cases.values import fill
from opsmith.checks.cases.wanted import Wanted
from opsmith.errors import ArgumentError
from opsmith.operators.core.arguments import DTYPES
from opsmith.operators.core.value_checks import check_values
from opsmith.signature import (
    NO_DEFAULT,
    Parameter,
    ScalarType,
    SequenceType,
    Signature,
    TensorType,
    bind,
    result_shapes,
)
from opsmith.signature.dtype_variables import parts
from opsmith.signature.items import items_of, lists_like
from opsmith.signature.sizes import expressions
from opsmith.signature.sizes.shapes import Fixed, Variadic
from opsmith.signature.solving.fitting import Fitting

#: Number of times that sizes are drawn before a sample is given up.
_ATTEMPTS = 8


@st.composite
def cases(draw: st.DrawFn, signature: Signature, wanted: Wanted) -> Case:
    """Draw one case."""
    return _Sampler(draw, signature, wanted).case()


@st.composite
def pairs(draw: st.DrawFn, signature: Signature, wanted: Wanted) -> tuple[Case, Case]:
    """Draw two cases that differ in sizes and values only, two of three pairs in parity too.

    A trace may bake in the parity of a size.
    """
    sampler = _Sampler(draw, signature, wanted)
    first = sampler.case()
    sampler.place = "second "  # the simplest pair has other values too
    if draw(st.sampled_from((True, True, False))):
        sampler.turn()
    return first, sampler.case()


class _Sampler:
    def __init__(self, draw: st.DrawFn, signature: Signature, wanted: Wanted) -> None:
        self.draw = draw
        self.signature = signature
        self.wanted = wanted
        self.in_shapes = scalars_in_shapes(signature)
        if wanted.given and signature.shaped and not signature.data_dependent:
            self._require_possible()
        self.absent = {
            p.name: draw(st.booleans())
            for p in signature.parameters
            if (p.optional and p.default is None) or (p.optional and p.is_tensor)
        }
        self.lengths: dict[str, int] = {}
        self.forced_items: dict[tuple[str, int], int] = {}
        for p in signature.tensors:
            if p.is_tensor_list and p.name not in self.lengths:
                alike = lists_like(p, signature.tensors)
                forced = [name for name in items_of(p) if name in wanted.forced]
                least = forced or any(name in signature.nonempty for name in alike)
                lengths = wanted.lengths or ((2, 1, 3) if least else (2, 1, 3, 0))
                count = draw(st.sampled_from(lengths))
                self.lengths.update(dict.fromkeys(alike, count))
                # One of several tensors may stay small beside the others.
                small = draw(st.sampled_from((-1, *range(count)))) if forced and count > 1 else -1
                places = [place for place in range(count) if place != small]
                self.forced_items |= {(n, at): wanted.forced[n] for n in forced for at in places}
        self.ranks: dict[tuple[str, str], int] = {}
        self.items: dict[tuple[str, int], tuple[int, ...]] = {}
        self.place = ""
        self.scalars: dict[str, Any] = {}
        self.drawn: list[int] = []
        self.earlier: list[int] = []
        self.fitting = Fitting(signature)
        self.side = self._side() if wanted.square else None
        # Either one tensor alone has the wanted kind of values, or all have.
        takers = [at for p in signature.tensors if self._takes(p) for at in self._places(p)]
        choices = takers if wanted.alone else (None, *takers)
        self.taker = draw(st.sampled_from(choices)) if len(takers) > 1 else None
        if wanted.same:
            self.absent.update(dict.fromkeys(wanted.same, False))

    def _side(self) -> int:
        """Draw the size of all dimensions."""

        def fits(size: int) -> bool:
            dims = dict.fromkeys(self.signature.dims, size)
            return all(self.fitting.fits(name, size, dims, {}) for name in dims)

        return self.draw(st.sampled_from([*filter(fits, self.wanted.sizes)] or self.wanted.sizes))

    def turn(self) -> None:
        """Draw sizes for the next case that are even where the last one's were odd."""
        self.earlier, self.drawn = self.drawn, []

    def case(self) -> Case:
        """Draw new sizes and values for the sampler's skeleton."""
        try:
            return self._case()
        except (NoValue, ArgumentError, ZeroDivisionError, KeyError):
            # No value is in the ranges, or a size would be negative: the operator has no such call.
            reject()
            raise AssertionError from None

    def _case(self) -> Case:
        signature = self.signature
        self.items = {}
        dims, variadic = self._dims_that_fit()
        for parameter in signature.parameters:
            self._scalar(parameter, dims)
        values: dict[str, Any] = {p.name: self.scalars.get(p.name) for p in signature.parameters}
        shapes = {
            p.name: self._shapes(p, dims, variadic)
            for p in signature.tensors
            if not self.absent.get(p.name)
        }
        self._require_small(shapes)
        for parameter in readers_last(signature):
            if parameter.name in shapes:
                values[parameter.name] = self._tensors(
                    parameter, shapes[parameter.name], dims, values
                )
        if self.wanted.same:
            one, other = self.wanted.same
            values[other] = begin_later(values[one], values[other], self.wanted.shift)
        case = Case(signature, values, same=self.wanted.same, shift=self.wanted.shift)
        bindings = bind(signature, case.described())
        for parameter in signature.tensors:
            if parameter.constraints:
                check_values(signature, parameter, values, bindings)
        if signature.shaped and not signature.data_dependent:
            found = result_shapes(signature, bindings, values)
            self._require_small({"result": list(found)})
        return lay_out_case(self.draw, case, self.wanted.layouts)

    # --- sizes -------------------------------------------------------------------------------

    def _dims_that_fit(self) -> tuple[dict[str, int], dict[str, tuple[int, ...]]]:
        """Draw sizes; start again if the last size does not fit the earlier ones."""
        scalars, drawn = dict(self.scalars), list(self.drawn)
        for _ in range(_ATTEMPTS):
            try:
                return self._dims()
            except NoValue:
                self.scalars, self.drawn = dict(scalars), list(drawn)
        raise NoValue

    def _dims(self) -> tuple[dict[str, int], dict[str, tuple[int, ...]]]:
        signature, fitting = self.signature, self.fitting
        room = self.wanted.max_elements
        given = self.wanted.given
        self.scalars |= {name: given[name] for name in given if fitting.reads(name)}
        plain = [name for name in signature.dims if name not in signature.variadic_dims]
        # Sizes that are fixed come first, so that the others fit them.
        dims = {name: self.wanted.forced[name] for name in plain if name in self.wanted.forced}
        for size in dims.values():
            room //= max(size, 1)
        variadic: dict[str, tuple[int, ...]] = {}
        taken: set[int] = set()
        names = fitting.order((*dims, *self.scalars))
        left = len(names)
        for name in names:
            left -= 1
            if name in signature.by_name:
                self._scalar(signature.by_name[name], dims)
                continue
            if name in signature.variadic_dims:
                sizes = []
                for _ in range(self._rank("*", name)):
                    size = self._size(room >> left, taken)
                    sizes.append(size)
                    room //= max(size, 1)
                if name in self.wanted.forced:
                    sizes[-1:] = [self.wanted.forced[name]]
                variadic[name] = tuple(sizes)
                continue
            size = self._size(room >> left, taken, name, dims)
            dims[name] = size
            room //= max(size, 1)
        return dims, variadic

    def _size(
        self, largest: int, taken: set[int], name: str = "", dims: Mapping[str, int] | None = None
    ) -> int:
        if self.side is not None:
            return self.side
        largest = max(largest, min(self.wanted.sizes), 2)
        largest = min(largest, self.wanted.most.get(name, largest))
        allowed = [size for size in self.wanted.sizes if size <= largest]
        allowed = self._fitting_sizes(name, allowed, dims or {}, taken)
        if self.wanted.distinct:
            fresh = [size for size in allowed if size not in taken]
            # If no single tensor has all dimensions, another, larger size may still fit.
            others = [
                size
                for size in sorted(set(self.wanted.sizes) - taken)
                if self.fitting.fits(name, size, dims or {}, self.scalars)
            ]
            allowed = fresh or [*others[:1], *allowed]
        if len(self.drawn) < len(self.earlier):
            before = self.earlier[len(self.drawn)]
            turned = [size for size in allowed if size % 2 != before % 2]
            allowed = [size for size in turned if size not in self.earlier] or turned or allowed
        size = self.draw(st.sampled_from(allowed))
        taken.add(size)
        self.drawn.append(size)
        return size

    def _fitting_sizes(
        self, name: str, sizes: list[int], dims: Mapping[str, int], taken: set[int]
    ) -> list[int]:
        if not sizes or not self.fitting.reads(name):
            return sizes
        found = self.fitting.sizes(name, sizes, dims, self.scalars, taken)
        if not found:
            raise NoValue
        return found

    def _rank(self, owner: str, name: str) -> int:
        key = (owner, name)
        if key not in self.ranks:
            self.ranks[key] = self.draw(st.sampled_from(self.wanted.ranks))
        return self.ranks[key]

    def _shapes(
        self, parameter: Parameter, dims: dict[str, int], variadic: dict[str, tuple[int, ...]]
    ) -> list[tuple[int, ...]]:
        count = self.lengths[parameter.name] if parameter.is_tensor_list else 1
        type_ = parameter.tensor_type
        assert type_ is not None
        return [self._shape(parameter.name, type_, dims, variadic, i) for i in range(count)]

    def _shape(
        self,
        owner: str,
        type_: TensorType,
        dims: dict[str, int],
        variadic: dict[str, tuple[int, ...]],
        place: int,
    ) -> tuple[int, ...]:
        if type_.shape is None:
            return tuple(self._size(16, set()) for _ in range(self._rank(owner, "...")))
        sizes: list[int] = []
        for dim in type_.shape.dims:
            if isinstance(dim, Variadic):
                if dim.item is not None:
                    sizes.extend(self._of_items(dim.item, place, several=True))
                elif dim.name is not None:
                    sizes.extend(variadic[dim.name])
                else:
                    sizes.extend(self._size(8, set()) for _ in range(self._rank(owner, "...")))
            elif isinstance(dim, Fixed):
                sizes.append(expressions.evaluate(dim.expression, dims, self.scalars))
            elif dim.item is not None:
                sizes.extend(self._of_items(dim.item, place, several=False))
            else:
                sizes.append(self._size(16, set()))
        if any(size < 0 for size in sizes):
            raise NoValue
        return tuple(sizes)

    def _of_items(self, name: str, place: int, *, several: bool) -> tuple[int, ...]:
        """Return the sizes that lists share at one place, drawn where the first list has them."""
        if (name, place) not in self.items:
            count = self._rank(f"?{place}", name) if several else 1
            forced = self.forced_items.get((name, place))
            largest = 2 if forced is not None else 8 if several else 16
            sizes = [self._size(largest, set()) for _ in range(count)]
            self.items[name, place] = tuple(sizes) if forced is None else (*sizes[:-1], forced)
        return self.items[name, place]

    def _require_possible(self) -> None:
        """Reject before anything is drawn, so that no other sample is tried, if none is small."""
        shapes = [result.tensor_type.shape for result in self.signature.results]
        least = [shape.least_numel(self.wanted.given) for shape in shapes if shape]
        if min(self.wanted.sizes) > 0 and self._most() < max(least, default=0):
            reject()

    def _most(self) -> int:
        """Return the largest number of elements of all arguments, and of all results."""
        # Sizes that are numbers, as in "4096 4096", may need more elements than are wanted.
        return max(4 * self.wanted.max_elements, 2 * self.signature.least_numel())

    def _require_small(self, shapes: Mapping[str, list[tuple[int, ...]]]) -> None:
        total = sum(math.prod(shape) for many in shapes.values() for shape in many)
        if total > self._most() * max(len(self.forced_items), 1):
            raise NoValue

    # --- values ------------------------------------------------------------------------------

    def _tensors(
        self,
        parameter: Parameter,
        shapes: list[tuple[int, ...]],
        dims: dict[str, int],
        values: dict[str, Any],
    ) -> Any:
        type_ = parameter.tensor_type
        assert type_ is not None
        dtype = self._dtype(type_)
        made = [
            fill(
                parameter,
                shape,
                dtype,
                self._seed(place),
                dims,
                values,
                self.wanted.values if self.taker in (None, place) else "",
            )
            for place, shape in zip(self._places(parameter), shapes, strict=True)
        ]
        return made if parameter.is_tensor_list else made[0]

    def _seed(self, owner: str) -> int:
        """Draw a seed that `owner` shares with no other argument, in the simplest sample either."""
        own = f"{self.place}{owner} {self.draw(st.integers(0, 2**16))}"
        return zlib.crc32(f"{self.wanted.seed} {own}".encode())

    def _places(self, parameter: Parameter) -> list[str]:
        """Name each tensor of an argument."""
        return [f"{parameter.name}[{n}]" for n in range(self.lengths.get(parameter.name, 1))]

    def _takes(self, parameter: Parameter) -> bool:
        type_ = parameter.tensor_type
        if not self.wanted.values or type_ is None or self.absent.get(parameter.name):
            return False
        return takes(parameter, DTYPES[self._dtype(type_)], self.wanted.values)

    def _dtype(self, type_: TensorType) -> str:
        if type_.shape is None:
            # A plain Tensor declares no dtype, so use the most common one.
            return next(iter(parts(self.wanted.dtype)), "float32")
        dtype = self.signature.dtype_in(type_, self.wanted.dtype)
        assert dtype is not None
        return dtype

    def _scalar(self, parameter: Parameter, dims: dict[str, int]) -> None:
        name = parameter.name
        if not isinstance(parameter.type, ScalarType | SequenceType):
            return
        if name in self.scalars:
            self._require_in_range(parameter, dims)
            return
        if name in self.wanted.given:
            self.scalars[name] = self.wanted.given[name]
            self._require_in_range(parameter, dims)
            return
        if self.absent.get(name):
            self.scalars[name] = None
            return
        for constraint in parameter.constraints:
            for expression in constraint.expressions():
                for scalar in expressions.scalars_of(expression):
                    self._scalar(self.signature.by_name[scalar.parameter], dims)
        default = parameter.default
        fits = default is not NO_DEFAULT and self._fits(name, default, dims)
        # The default may switch off what unusual values are for, as k=0 does: take it less often.
        rare = st.sampled_from((False, False, False, True))
        if (
            fits
            and default is not None
            and self.draw(rare if self.wanted.values else st.booleans())
        ):
            self.scalars[name] = default
            return
        one = self._one(parameter, dims)
        if isinstance(parameter.type, ScalarType):
            self.scalars[name] = self.draw(one)
        else:
            length = parameter.type.length
            least, most = (0, 4) if length is None else (length, length)
            if length is None and self.wanted.lengths:
                least, most = min(self.wanted.lengths), max(self.wanted.lengths)
            if any(constraint.along for constraint in parameter.constraints):
                line = self._line(parameter, least, most, dims)
                if not self._fits(name, line, dims):
                    raise NoValue
                self.scalars[name] = line
                return
            several = st.lists(one, min_size=least, max_size=most)
            if self.fitting.reads(name):
                several = several.filter(lambda items: self._fits(name, items, dims))
            self.scalars[name] = self.draw(several)

    def _fits(self, name: str, value: Any, dims: Mapping[str, int]) -> bool:
        return self.fitting.fits(name, value, dims, self.scalars)

    def _line(self, parameter: Parameter, least: int, most: int, dims: dict[str, int]) -> list[Any]:
        assert isinstance(parameter.type, SequenceType)
        dtype = "int64" if parameter.type.kind == "int" else "float64"
        count, seed = self.draw(st.integers(least, most)), self._seed(parameter.name)
        made: list[Any] = fill(parameter, (count,), dtype, seed, dims, self.scalars).tolist()
        return made

    def _one(self, parameter: Parameter, dims: dict[str, int]) -> st.SearchStrategy[Any]:
        assert isinstance(parameter.type, ScalarType | SequenceType)
        kind = parameter.type.kind
        if kind == "bool":
            return st.booleans()
        if isinstance(parameter.type, ScalarType) and parameter.type.choices:
            return st.sampled_from(parameter.type.choices)
        if kind == "str":
            return st.sampled_from(("a", "", "nearest", "sum"))
        low, high = parameter.limits(dims, self.scalars)
        if kind == "float":
            # If the bound itself is not allowed, the nearest sampled value is an eighth above it.
            above = any(range_.above for range_ in parameter.ranges)
            return floats(low + 0.125 if above else low, high, exact=not self.wanted.inexact)
        if low is None and high is None:
            low, high = (0, 4) if parameter.name in self.in_shapes else (-2, 4)
        lowest = int(low) if low is not None else int(high) - 6
        highest = int(high) if high is not None else lowest + 6
        # A wide range may allow sizes that are too large to run.
        if parameter.name in self.in_shapes:
            highest = min(highest, max(lowest, 0) + 6)
            lowest = max(lowest, 0)
        if highest < lowest:
            raise NoValue
        highest = min(highest, lowest + 1000)
        name = parameter.name
        if not self.fitting.reads(name) or not isinstance(parameter.type, ScalarType):
            if not self.wanted.values:
                return st.integers(lowest, highest)
            # So may the least number, with which few samples begin.
            middle = (lowest + highest + 1) // 2
            return st.sampled_from([*range(middle, highest + 1), *range(lowest, middle)])
        fitting = [n for n in range(lowest, highest + 1) if self._fits(name, n, dims)]
        if not fitting and high is None:
            fitting = self.fitting.beyond(name, lowest, dims, self.scalars)
        if not fitting:
            raise NoValue
        return st.sampled_from(fitting)

    def _require_in_range(self, parameter: Parameter, dims: dict[str, int]) -> None:
        value = self.scalars[parameter.name]
        if value is None or not parameter.ranges:
            return
        low, high = parameter.limits(dims, self.scalars)
        for item in value if isinstance(value, list | tuple) else [value]:
            if (low is not None and item < low) or (high is not None and item > high):
                raise NoValue
