"""Cohorts: named families of cases that normal sampling does not reach."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from opsmith.checks.cases.boundary_values import (
    ARRANGEMENTS,
    FLOATS,
    HALVES,
    LARGE_EQUAL,
    MAGNITUDES,
    NEEDLES,
    ONE_MAGNITUDE,
    RUNS,
    SMALL_BESIDE_LARGE,
    takes,
)
from opsmith.checks.cases.dependencies import scalars_in_shapes
from opsmith.checks.cases.wanted import Wanted
from opsmith.operators.core.arguments import DTYPES
from opsmith.signature import Parameter, ScalarType, SequenceType, Signature, TensorType
from opsmith.signature.constraints import ValueRange
from opsmith.signature.items import item_names
from opsmith.signature.sizes import expressions
from opsmith.signature.sizes.shapes import Variadic
from opsmith.signature.solving.fitting import Fitting

#: The cohorts that every kernel owes: the report says which of these a declaration rules out.
OWED = ("boundary sizes", "odd sizes", "long sums", "long rows", "many elements")
#: Sizes around the usual ends of blocks and vectors of kernels, in groups of one magnitude.
_BOUNDARIES = (
    (31, 32, 33, 63, 64, 65),
    (127, 128, 129, 255, 256, 257),
    (511, 512, 513, 1023, 1024, 1025),
    (2047, 2048, 2049, 4095, 4096),
    (4097,),
)
#: Sizes longer than the vectors and rows that kernels keep in registers.
_LONG_ROWS = (257, 511, 513, 1000, 1025, 2049)
#: Number of elements that a large tensor exceeds: 16 bits cannot number them.
_MANY = 66_000
#: Number of dimensions that are tried at boundaries. Another seed chooses other dimensions.
_DIMENSIONS = 4
#: Largest number of elements of a case with served sizes: the author asked for these sizes.
_LARGE = 1 << 24
#: Numbers that hand-written tests rarely contain. All but the smallest dtypes represent the
#: floats exactly.
_FAR = {
    "float": (-1.0, 0.0, 100.0, -100.0, 0.0078125, 1000.0, 0.1),
    "int": (-1, 0, 100, -100, 1000, 70000),
}
#: Ranges whose numbers are drawn log-uniformly, beside `_FAR`.
_FAR_RANGES = {
    "float": ((1e3, 1e6), (1e6, 1e15), (1e-7, 1e-2)),
    "int": ((101, 999), (1001, 70_000)),
}
#: Failure codes by kind of values. For NaN and infinity, the comparison chooses the code.
_CODES = {
    **dict.fromkeys(
        ("large", "huge", "tiny", "denormal", "ends of the range", MAGNITUDES, ONE_MAGNITUDE),
        "OPS-VALUE-RANGE",
    ),
    **dict.fromkeys(("equal", "ties", "sorted", "reversed"), "OPS-VALUE-ORDER"),
    **dict.fromkeys(("zeros", "signed zeros"), "OPS-VALUE-ZERO"),
    **dict.fromkeys(("NaN", "infinity"), ""),
}
#: Number of equal terms for which the error of a sum in half precision, relative to its tolerance,
#: is largest. With more terms, the error grows further, but so does the tolerance.
_LONG = {"float16": 4097, "bfloat16": 1025}
#: Number of terms of a long sum. A kernel that keeps eight partial sums in half precision is then
#: wrong by several tolerances.
_PARTIAL = 4097
#: Larger integers than normal sampling draws, for arguments without a small upper bound.
_BEYOND = (9, 17, 33, 65)
#: If an integer breaks a condition, this many integers from it upwards are tried in its place.
_NEAR = 8
#: Number of cases by kind of values.
_EXAMPLES = {"NaN": 8, "infinity": 8, "large": 2, "denormal": 2, "zeros": 2, ONE_MAGNITUDE: 6}
_FEW = (2, 3, 1, 5)
_MODEST = (3, 5, 2, 8, 1, 17, 4)
#: Sizes that mostly leave room for such larger integers.
_ROOMY = (33, 17, 70, 9, 130, 2, 1)


@dataclass(frozen=True)
class Cohort:
    """Cases with something in common.

    Attributes:
        wanted: description of the cases to sample.
        examples: number of cases.
        other_examples: number of cases in a dtype other than the default one.
        every_dtype: whether every dtype other than the default one has these cases.
        half_examples: number of cases in half precision, or in the first of `halves`.
        halves: dtypes in order of preference; the first that the kernel supports is used.
        code: failure code of a value that is wrong in these cases and in no earlier ones.
    """

    name: str
    wanted: Wanted
    examples: int = 1
    other_examples: int = 0
    half_examples: int = 0
    halves: tuple[str, ...] = ("float16", "bfloat16")
    every_dtype: bool = False
    code: str = ""


def served(every: Sequence[Mapping[str, int]]) -> Iterator[Cohort]:
    """Yield cases with the sizes that the author serves."""
    for forced in every:
        wanted = Wanted(sizes=_FEW, forced=forced, max_elements=_LARGE)
        yield Cohort("served sizes", wanted, 2, code="OPS-SIZE-BOUNDARY")


def sizes(
    signature: Signature, seed: int, most: Mapping[str, int] | None = None
) -> Iterator[Cohort]:
    """Yield cases with sizes at tile boundaries, odd sizes, many dimensions, and long lists.

    Args:
        seed: chooses dimensions and sizes.
        most: the largest sizes of some dimensions. Sizes at boundaries beyond them are left out,
            and these sizes stand in for longer rows and sums.
    """
    rng = random.Random(seed)
    largest = most or {}
    # Overlapping runs may add up one value again and again. The rounding errors then do not cancel,
    # and exceed a tolerance that is computed from the number of values.
    runs = {
        str(dim)
        for parameter in signature.tensors
        if any(isinstance(c, ValueRange) and c.start for c in parameter.constraints)
        for dim in parameter.dims
    }
    items = item_names(signature)
    names = [name for name in (*signature.dims, *items) if name not in runs]
    some = rng.sample(names, min(len(names), _DIMENSIONS))
    fitting = Fitting(signature)

    def long(name: str, length: int) -> int | None:
        return fitting.near(name, min(length, largest.get(name, length)))

    def sums(name: str, length: int, values: str, halves: tuple[str, ...], most: int = 2) -> Cohort:
        wanted = Wanted(sizes=_FEW, forced={name: length}, values=values)
        called = _called("long sums", length, min(_LONG["bfloat16"], largest.get(name, _PARTIAL)))
        code = "OPS-VALUE-ACCUMULATION"
        return Cohort(called, wanted, 0, half_examples=most, halves=halves, code=code)

    for name in some:
        for group in _BOUNDARIES:
            asked = rng.choice(group)
            size = fitting.near(name, asked)
            if size is None or size > largest.get(name, size):
                continue
            wanted = Wanted(sizes=_FEW, forced={name: size})
            # In some cases, one tensor of a list stays small.
            examples = 3 if name in items else 1
            called = _called("boundary sizes", size, asked)
            yield Cohort(called, wanted, examples, code="OPS-SIZE-BOUNDARY")
    open_ranks = (*signature.variadic_dims, *item_names(signature, several=True))
    if len(names) > 1 or open_ranks:
        wanted = Wanted(sizes=(5, 7, 9, 11, 13, 15, 17))
        yield Cohort("odd sizes", wanted, 4, code="OPS-SIZE-BOUNDARY")
    # Long sums come after the boundary sizes, so that a kernel that is wrong for many elements is
    # reported as such. Any dimension may be summed, and a sum of many terms of one sign loses
    # precision in half precision.
    for name in names:
        for half, least in _LONG.items():
            if length := long(name, least):
                yield sums(name, length, RUNS, (half,))
        if length := long(name, _PARTIAL):
            for kind, halves in zip(SMALL_BESIDE_LARGE, itertools.permutations(_LONG), strict=True):
                yield sums(name, length, kind, halves, 1)
        for half in _LONG:
            # A sum of few terms has a small tolerance, so it shows which parts are left out.
            if length := long(name, 1025):
                yield sums(name, length, NEEDLES, (half,))
    for name in some:
        asked = rng.choice(_LONG_ROWS)
        if length := long(name, asked):
            wanted = Wanted(sizes=_FEW, forced={name: length})
            called = _called("long rows", length, min(asked, largest.get(name, asked)))
            yield Cohort(called, wanted, 0, 1, every_dtype=True, code="OPS-SIZE-BOUNDARY")
            # Let equal numbers meet in several passes of a block, and the largest be in the last.
            for kind in ("ties", "sorted"):
                yield Cohort(called, replace(wanted, values=kind), 1, code="OPS-VALUE-ORDER")
    for name in some:
        # The sum of many large numbers exceeds the range of half precision.
        if length := long(name, _LONG["float16"]):
            yield sums(name, length, LARGE_EQUAL, tuple(_LONG))
    half, least = "bfloat16", _LONG["bfloat16"]  # with 4097 terms, the reference takes long
    for pair in _apart(signature, names)[:2]:  # a filter adds up as many terms as both allow
        lengths = {name: length for name in pair if (length := long(name, least))}
        if len(lengths) == 2:
            wanted = Wanted(sizes=_FEW, forced=lengths, values=RUNS)
            code = "OPS-VALUE-ACCUMULATION"
            yield Cohort("long sums", wanted, 0, half_examples=1, halves=(half,), code=code)
    if open_ranks or any(_any_rank(p) for p in signature.tensors):
        wanted = Wanted(sizes=(2, 1, 3), ranks=(4, 6, 5, 7))
        yield Cohort("many dimensions", wanted, 6, code="OPS-SIZE-RANK")
    if any(p.is_tensor_list or isinstance(p.type, SequenceType) for p in signature.parameters):
        wanted = Wanted(sizes=(2, 3, 1), lengths=(5, 7, 9))
        yield Cohort("long lists", wanted, 3, code="OPS-SIZE-LIST")


def _apart(signature: Signature, names: Sequence[str]) -> list[tuple[str, str]]:
    """Return pairs of dimensions that no tensor has together, and no large one has at all."""
    shapes = [set(map(str, typed.dims)) for typed in (*signature.tensors, *signature.results)]
    return [
        pair
        for pair in itertools.combinations(names, 2)
        if not any({*pair} <= s or ({*pair} & s and len(s) > 3) for s in shapes)
    ]


def large(signature: Signature, most: Mapping[str, int] | None = None) -> Iterator[Cohort]:
    """Yield one case for each dtype with a tensor of more than 65536 elements.

    Args:
        most: the largest sizes of some dimensions, which are small if others can be large.
    """
    for forced in _large_sizes(signature, most or {}):
        wanted = Wanted(sizes=(1, 2, 3), forced=forced, max_elements=1 << 18, ranks=(1, 2))
        called = _called("many elements", math.prod(forced.values()), _MANY)
        yield Cohort(called, wanted, 1, 1, every_dtype=True, code="OPS-SIZE-BOUNDARY")


def _large_sizes(signature: Signature, most: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Yield the sizes that make the tensor with the most dimensions large: all of them alike."""
    named = [
        list(dict.fromkeys(name for dim in parameter.dims if (name := str(dim).lstrip("?*"))))
        for parameter in signature.tensors
        if parameter.shape is not None
    ]
    fitting, known = Fitting(signature), (*signature.dims, *item_names(signature))
    for names in sorted(named, key=len, reverse=True):
        names = [name for name in names if name in known]
        names = [name for name in names if name not in most] or names
        if not names:
            continue
        side = math.ceil(_MANY ** (1 / len(names)))
        sizes = {name: fitting.near(name, side) for name in names}
        if all(sizes.values()):
            yield {name: size for name, size in sizes.items() if size}
            return


def _called(name: str, size: int, asked: int) -> str:
    """Return a cohort's name, or another one if the declaration allows no size near the asked."""
    return name if 2 * size > asked else "largest sizes"


def fixed_dtypes(signature: Signature) -> frozenset[str]:
    """Return the dtypes of the tensors whose dtype is fixed."""
    types = [p.tensor_type for p in signature.tensors]
    return frozenset(
        type_.dtypes.names[0]
        for type_ in types
        if type_ is not None and type_.shape is not None and not type_.dtypes.generic
    )


def values(signature: Signature, dtype: str | None) -> Iterator[Cohort]:
    """Yield cases whose tensors hold other values than normally distributed ones."""
    kinds = (*FLOATS, *ARRANGEMENTS, MAGNITUDES, ONE_MAGNITUDE)
    # Zeros are equal too, so equal numbers come first.
    for kind in sorted(kinds, key=lambda kind: _CODES[kind] != "OPS-VALUE-ORDER"):
        if any(takes(p, _dtype(signature, p, dtype), kind) for p in signature.tensors):
            # The few special elements have to reach the places where the operator handles them.
            examples = _EXAMPLES.get(kind, 3)
            # Let several ends meet: a red pixel has one of 255 beside two of 0.
            wanted = Wanted(sizes=_ROOMY if "ends" in kind else _MODEST, values=kind)
            yield Cohort(kind, wanted, examples, 2, code=_CODES[kind])
            if kind == "zeros":  # a sample may hold nothing else
                yield Cohort(kind, replace(wanted, alone=True), code=_CODES[kind])
    if any(takes(p, _dtype(signature, p, dtype), "equal") for p in signature.tensors):
        many = Wanted(sizes=(300, 3, 2), values="equal")  # more than eight bits count
        yield Cohort("equal", many, 2, code=_CODES["equal"])
    if any(takes(p, _dtype(signature, p, dtype), HALVES) for p in signature.tensors):
        # Draw so many that one equals a number among the arguments, or a sum of others.
        several = Wanted(sizes=(33, 9, 5), values=HALVES)
        yield Cohort(HALVES, several, 4, 2, code="OPS-VALUE-HALVES")
    if any(takes(p, _dtype(signature, p, dtype), "large") for p in signature.tensors):
        # Up to which number an exponential counts differs in this dtype: try many.
        many, code = Wanted(sizes=_ROOMY, values="large"), _CODES["large"]
        yield Cohort("large", many, 0, half_examples=2, halves=("float64",), code=code)


def arguments(signature: Signature, seed: int) -> Iterator[Cohort]:
    """Yield cases with numbers far from 1, with every choice, and with one tensor passed twice."""
    sizes = scalars_in_shapes(signature)
    rng = random.Random(seed)
    # Numbers that are compared with sizes are drawn with these.
    compared = {
        scalar.parameter
        for condition in signature.conditions
        for side in condition.expressions()
        for scalar in expressions.scalars_of(side)
    }
    free = [parameter for parameter in signature.parameters if parameter.name not in compared]
    numbers = [(p, kind) for p in free if (kind := _number_kind(p)) and p.name not in sizes]
    for parameter, kind in numbers[:_DIMENSIONS]:
        for number in (*_FAR[kind], *_far_numbers(kind, rng)):
            given = {parameter.name: _as_given(parameter, number)}
            wanted = Wanted(sizes=_MODEST, given=given)
            yield Cohort("numbers", wanted, code="OPS-ARGUMENT-NUMBER")
    fitting = Fitting(signature)
    open_integers = [p for p in signature.parameters if _is_open(p, p.name in sizes)]
    for parameter in open_integers[:_DIMENSIONS]:
        for number in _beyond(parameter, fitting):
            wanted = Wanted(sizes=_ROOMY, given={parameter.name: number})
            yield Cohort("numbers", wanted, code="OPS-ARGUMENT-NUMBER")
    for parameter in signature.parameters:
        if isinstance(parameter.type, ScalarType):
            for choice in parameter.type.choices:
                wanted = Wanted(sizes=_MODEST, given={parameter.name: choice})
                yield Cohort("choices", wanted, code="OPS-ARGUMENT-NUMBER")
    for first, second in itertools.islice(_alike(signature), 4):
        equal = Wanted(sizes=(3, 5, 2, 8), same=(first, second), square=True)
        yield Cohort("same tensor", equal, 2, code="OPS-ARGUMENT-SAME")


def some_arguments(signature: Signature, seed: int) -> Iterator[Cohort]:
    """Yield one case of each kind of `arguments`, and of each number three: -1, 100 and -100."""
    tried: Counter[str] = Counter()
    for cohort in arguments(signature, seed):
        tried.update(list(cohort.wanted.given))
        if cohort.name != "numbers" or all(tried[n] in (1, 3, 4) for n in cohort.wanted.given):
            yield replace(cohort, examples=1)


def _beyond(parameter: Parameter, fitting: Fitting) -> list[Any]:
    """Return the integers of `_BEYOND`, or integers near these, that fit the conditions."""
    found: list[Any] = []
    limits = [one.high for one in parameter.ranges if one.high is not None and not one.high.reason]
    highest = min((limit.number({}, {}) for limit in limits), default=math.inf)
    for number in _BEYOND:
        if number > highest:  # hundreds of samples would be rejected
            break
        near = (_as_given(parameter, number + ahead) for ahead in range(_NEAR))
        found += itertools.islice((n for n in near if fitting.fits(parameter.name, n, {}, {})), 1)
    return found


def _far_numbers(kind: str, rng: random.Random) -> Iterator[float]:
    """Draw numbers whose logarithms are uniform."""
    for low, high in _FAR_RANGES[kind]:
        number = math.exp(rng.uniform(math.log(low), math.log(high)))
        yield round(number) if kind == "int" else rng.choice((number, -number))


def overlaps(signature: Signature) -> Iterator[Cohort]:
    """Yield cases in which an argument that is read shares memory with one that is written."""
    pairs = [
        (first, second)
        for first, second in _alike(signature, written=True)
        if signature.by_name[first].mutated != signature.by_name[second].mutated
    ]
    for pair in pairs[:4]:
        for same, shift in ((pair, 0), (pair, 1), (pair[::-1], 1)):
            wanted = Wanted(sizes=(3, 5, 2, 8), same=same, shift=shift, square=True)
            yield Cohort("written and read", wanted, code="OPS-ARGUMENT-SAME")


def _alike(signature: Signature, *, written: bool = False) -> Iterator[tuple[str, str]]:
    alone = [
        p
        for p in signature.tensors
        if p.is_tensor and not p.constraints and (written or not p.mutated)
    ]
    for first, second in itertools.combinations(alone, 2):
        one, other = first.tensor_type, second.tensor_type
        if one is None or other is None or one.dtypes != other.dtypes:
            continue
        # Tensors of different ranks never have one shape: hundreds of samples would be rejected.
        ranks = {rank for type_ in (one, other) if (rank := _rank(type_)) is not None}
        if len(ranks) < 2:
            yield first.name, second.name


def _rank(type_: TensorType) -> int | None:
    """Return the number of dimensions; `None` where the declaration leaves it open."""
    dims = None if type_.shape is None else type_.shape.dims
    if dims is None or any(isinstance(dim, Variadic) for dim in dims):
        return None
    return len(dims)


def _number_kind(parameter: Parameter) -> str:
    """Return ``int`` or ``float`` for an unbounded number; an empty string otherwise."""
    type_ = parameter.type
    if not isinstance(type_, ScalarType | SequenceType) or parameter.constraints:
        return ""
    if isinstance(type_, ScalarType) and type_.choices:
        return ""
    return type_.kind if type_.kind in _FAR else ""


def _is_open(parameter: Parameter, in_shapes: bool) -> bool:
    """Return whether normal sampling draws only small integers although larger ones are allowed."""
    type_ = parameter.type
    if not isinstance(type_, ScalarType | SequenceType) or type_.kind != "int":
        return False
    if isinstance(type_, ScalarType) and type_.choices:
        return False
    ranges = [one for one in parameter.constraints if isinstance(one, ValueRange)]
    if len(ranges) != len(parameter.constraints):
        return False
    return in_shapes or all(one.high is None for one in ranges)


def _as_given(parameter: Parameter, number: float) -> float | list[float]:
    """Return `number` as an argument: repeated in a list where a sequence is expected."""
    type_ = parameter.type
    if isinstance(type_, SequenceType):
        return [number] * (2 if type_.length is None else type_.length)
    return number


def _any_rank(parameter: Parameter) -> bool:
    type_ = parameter.tensor_type
    return type_ is not None and type_.shape is None


def _dtype(signature: Signature, parameter: Parameter, dtype: str | None) -> torch.dtype:
    type_ = parameter.tensor_type
    assert type_ is not None
    return DTYPES[signature.dtype_in(type_, dtype) or "float32"]
