"""Arguments for timed calls: all of one shape, with new contents for every call.

A kernel that caches results by address, by first element or by content must not gain from it. So
every call of a batch has memory of its own, every batch is drawn anew, and floating arguments
without constraints are multiplied by another number for each call.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.cases.case import Case
from opsmith.checks.cases.dependencies import readers_last
from opsmith.checks.cases.integer_runs import NoValue
from opsmith.checks.cases.sampling import cases
from opsmith.checks.cases.search import search
from opsmith.checks.cases.subject import Subject, registered
from opsmith.checks.cases.values import fill
from opsmith.checks.cases.wanted import Wanted
from opsmith.checks.isolation.wire import describe_arguments
from opsmith.errors import ArgumentError, OpsmithError
from opsmith.operators import Operator
from opsmith.operators.core.arguments import (
    every_tensor_in,
    holds_tensors,
    is_float8,
    map_named_tensors,
)
from opsmith.operators.core.value_checks import check_values
from opsmith.signature import NO_DEFAULT, bind

Arguments = dict[str, Any]
Draw = Callable[[int], "Arguments | None"]
"""Draws arguments of the fixed shape from a seed; `None` if the seed gives another shape."""

#: Number of sets drawn for a batch; the batch's other sets are multiples of the drawn sets.
_DRAWN = 4
#: If drawing a set takes more seconds than this, reuse sets that were drawn before.
_SLOW = 0.1
#: Number of attempts to draw a set of the same shape.
_ATTEMPTS = 8
#: Sizes of dimensions that the requested sizes leave open, and the most elements of a case.
_SIZES, _LARGEST = (16, 8, 4, 3, 2), 1 << 28
#: Number of samples to try until one has the requested sizes.
_TRIED = 20
_LEAST, _MOST = 0.5, 1.5


class NothingToTimeError(OpsmithError):
    """Raised if there are no sizes to time."""

    exit_code = 2


@dataclass(frozen=True)
class Batch:
    """Arguments for several calls.

    Attributes:
        first: the set of one call, whose shapes and scalars all sets share.
        blocks: the tensors by name, stacked over all sets along the first dimension.
    """

    count: int
    first: Mapping[str, Any]
    blocks: Mapping[str, Tensor]

    def request(self) -> dict[str, Any]:
        """Return the description of the batch for a message, which `payload` follows."""
        return {"arguments": describe_arguments(self.first), "count": self.count}

    def payload(self) -> bytes:
        """Return the bytes of each set."""
        columns = [
            block.reshape(self.count, -1).view(torch.uint8)
            for block in self.blocks.values()
            if block.numel()
        ]
        return torch.cat(columns, 1).numpy().tobytes() if columns else b""

    def arguments(self, number: int) -> Arguments:
        """Return the arguments of one call."""
        return map_named_tensors(self.first, lambda name, _: self.blocks[name][number])

    def change(self, number: int, changes: Sequence[tuple[str, int, float]]) -> None:
        """Change elements of the arguments of one call, by name and position."""
        for name, position, value in changes:
            self.blocks[name][number].view(-1)[position] = value


@dataclass
class Supply:
    """The source of arguments for one size in a benchmark.

    Attributes:
        label: the name of the size in reports.
        dtype: the generic dtype; empty if every dtype is fixed.
        first: one set of arguments.
        draw: draws further sets.
        scaled: names of the arguments that may be multiplied by a number.
        bytes: the size of one set in memory.
    """

    operator: Operator
    label: str
    dtype: str
    first: Arguments
    draw: Draw
    scaled: frozenset[str]

    def __post_init__(self) -> None:
        self._random = random.Random()
        self._known: list[Arguments] = []
        self._slow = False
        self.bytes = sum(tensor.nbytes for _, tensor in every_tensor_in(self.first))

    def batch(self, count: int) -> Batch:
        """Return fresh arguments for `count` calls."""
        sets = [self._fresh() for _ in range(min(count, _DRAWN))]
        order = [self._random.randrange(len(sets)) for _ in range(count)]
        blocks: dict[str, Tensor] = {}
        columns = [dict(every_tensor_in(one)) for one in sets]
        for name in columns[0]:
            block = torch.stack([column[name] for column in columns])[order]
            if name.partition("[")[0] in self.scaled and block.numel():
                factors = [self._random.uniform(_LEAST, _MOST) for _ in range(count)]
                shape = (count, *[1] * (block.dim() - 1))
                block = block * torch.tensor(factors, dtype=torch.float64).view(shape).to(
                    block.dtype
                )
            blocks[name] = block.contiguous()
        return Batch(count, self.first, blocks)

    def changes(self, batch: Batch, number: int) -> list[tuple[str, int, float]]:
        """Draw a change of one element in each argument of a call that may be multiplied.

        Returns:
            For each the tensor's name, the element's position, and its new value.
        """
        found = []
        for name, block in batch.blocks.items():
            flat = block[number].view(-1)
            scaled = name.partition("[")[0] in self.scaled and block.is_floating_point()
            if scaled and flat.numel():
                position = self._random.randrange(flat.numel())
                value = flat[position] * self._random.choice((_LEAST, _MOST))
                found.append((name, position, float(value)))
        return found

    @property
    def repeats(self) -> bool:
        """Return whether every call gets the same numbers, since no others could be drawn."""
        return not self.scaled and len(self._known) == 1

    def _fresh(self) -> Arguments:
        if self._slow and len(self._known) >= _DRAWN:
            return self._random.choice(self._known)
        started = time.perf_counter()
        found = None
        for _ in range(_ATTEMPTS):
            found = self.draw(self._random.randrange(2**31))
            if found is not None:
                break
        self._slow = self._slow or time.perf_counter() - started > _SLOW
        if found is None:
            self._known = self._known or [self.first]
            self._slow = True
            return self._random.choice(self._known)
        self._known = [*self._known[1 - _DRAWN :], found]
        return found


def supplies(
    subject: Subject, dtype: str | None, sizes: Sequence[Mapping[str, int]], most: int
) -> list[Supply]:
    """Return a supply for each size to time.

    Args:
        subject: an operator and a device.
        dtype: the generic dtype; `None` if every dtype is fixed.
        sizes: sizes of dimensions; by default the sizes of `register_sizes`, or those of registered
            cases.
        most: number of registered cases to use, the largest ones.
    """
    operator = subject.operator
    if dtype not in subject.dtypes:
        has = ", ".join(name for name in subject.dtypes if name is not None) or "no generic dtype"
        raise NothingToTimeError(f"{operator.name}: cannot be timed in {dtype}; it has {has}")
    known = operator.signature.dims
    for name in (name for one in sizes for name in one):
        if name not in known:
            raise NothingToTimeError(
                f"{operator.name}: a size names the dimension {name!r}; the arguments have "
                f"{', '.join(known) or 'no named dimension'}"
            )
    wanted = [*sizes] or [*operator.sizes]
    if wanted and not operator.only_registered_cases:
        return [_of_sizes(operator, dtype, one) for one in wanted]
    found = _of_cases(operator, dtype, most)
    if not found:
        raise NothingToTimeError(
            f"{operator.name}: nothing says which sizes to time. Register those that are served, "
            f"{operator.signature.name}.register_sizes({{…}}), or give them: --size NAME=SIZE,…"
        )
    return found


def _of_sizes(operator: Operator, dtype: str | None, forced: Mapping[str, int]) -> Supply:
    defaults = {
        p.name: p.default
        for p in operator.signature.parameters
        if not p.is_tensor and p.default is not NO_DEFAULT
    }
    # Prefer the defaults of scalar arguments, which most calls use, if the sizes allow them.
    case = _drawn(operator, dtype, forced, defaults) or _drawn(operator, dtype, forced, {})
    if case is None:
        label = " ".join(f"{name}={size}" for name, size in forced.items())
        raise NothingToTimeError(f"{operator.name}: no arguments could be drawn for {label}")

    def draw(seed: int) -> Arguments | None:
        return _refilled(case, seed)

    first = _copied(case.values)
    label = _label(operator, forced, first)
    return Supply(operator, label, dtype or "", first, draw, _scalable(operator, first))


def _drawn(
    operator: Operator, dtype: str | None, forced: Mapping[str, int], given: Arguments
) -> Case | None:
    """Draw a case with these sizes and arguments; `None` if there is none."""
    # The shapes to time must not depend on chance: a size of `*name` is that of its only dimension.
    alone = any(name in forced for name in operator.signature.variadic_dims)
    wanted = Wanted(
        dtype=dtype,
        sizes=_SIZES,
        forced=forced,
        max_elements=_LARGEST,
        given=given,
        ranks=(1,) if alone else Wanted.ranks,
    )
    found: list[Case] = []
    strategy = cases(operator.signature, wanted)
    search(
        strategy, found.append, examples=_TRIED, seed=0, seconds=60.0, size=lambda case: case.numel
    )
    return found[0] if found else None


def _label(operator: Operator, forced: Mapping[str, int], values: Arguments) -> str:
    """Describe the requested sizes, the other sizes, and the arguments that are not defaults."""
    signature = operator.signature
    bound = bind(signature, Case(signature, values).described())
    sizes = {
        **forced,
        **{n: s for n, s in (*bound.dims.items(), *bound.variadic.items()) if n not in forced},
    }
    parts = [f"{name}={size}" for name, size in sizes.items()]
    for parameter in signature.parameters:
        value = values[parameter.name]
        if value is None if parameter.is_tensor else value != parameter.default:
            parts.append(f"{parameter.name}={value!r}")
    return " ".join(parts)


def _of_cases(operator: Operator, dtype: str | None, most: int) -> list[Supply]:
    known = list(enumerate(registered(operator, dtype, 0)))
    sized = {number: sum(t.nbytes for _, t in every_tensor_in(case)) for number, case in known}
    largest = sorted(sized, key=lambda number: -sized[number])[:most]
    return [
        _of_case(operator, dtype, number, _copied(case))
        for number, case in known
        if number in largest and sized[number]
    ]


def _of_case(operator: Operator, dtype: str | None, number: int, first: Arguments) -> Supply:
    def draw(seed: int) -> Arguments | None:
        found = next(itertools.islice(registered(operator, dtype, seed), number, None), None)
        if found is None:
            return None
        case = _copied(found)
        alike = _shapes(case) == _shapes(first)
        plain = [value for value in case.values() if _is_plain(value)]
        same = plain == [value for value in first.values() if _is_plain(value)]
        return case if alike and same else None

    scaled = frozenset() if operator.only_registered_cases else _scalable(operator, first)
    dims = bind(operator.signature, Case(operator.signature, first).described()).text()
    return Supply(operator, f"case {number + 1}: {dims}", dtype or "", first, draw, scaled)


def _scalable(operator: Operator, values: Mapping[str, Any]) -> frozenset[str]:
    """Return the floating arguments that have no constraints."""
    return frozenset(
        name.partition("[")[0]
        for name, tensor in every_tensor_in(values)
        if (tensor.is_floating_point() or tensor.is_complex()) and not is_float8(tensor.dtype)
        if not operator.signature.by_name[name.partition("[")[0]].constraints
    )


def _refilled(case: Case, seed: int) -> Arguments | None:
    """Return the case's arguments with new values in the tensors."""
    signature = case.signature
    bindings = bind(signature, case.described())
    values = dict(case.values)
    seeds = random.Random(seed)

    def filled(parameter: Any, tensor: Tensor) -> Tensor:
        dtype = str(tensor.dtype).removeprefix("torch.")
        shape = tuple(tensor.shape)
        return fill(parameter, shape, dtype, seeds.randrange(2**31), bindings.dims, values)

    try:
        for parameter in readers_last(signature):
            value = values[parameter.name]
            if isinstance(value, Tensor):
                values[parameter.name] = filled(parameter, value)
            elif value is not None:
                values[parameter.name] = [filled(parameter, item) for item in value]
        for parameter in signature.tensors:
            if parameter.constraints:
                check_values(signature, parameter, values, bindings)
    except (NoValue, ArgumentError):
        return None
    return values


def _copied(arguments: Mapping[str, Any]) -> Arguments:
    return map_named_tensors(
        arguments, lambda _, tensor: tensor.clone(memory_format=torch.contiguous_format)
    )


def _is_plain(value: Any) -> bool:
    return not isinstance(value, Tensor) and not holds_tensors(value)


def _shapes(arguments: Mapping[str, Any]) -> list[Any]:
    return [(name, tensor.shape, tensor.dtype) for name, tensor in every_tensor_in(arguments)]
