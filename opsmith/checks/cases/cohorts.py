"""Cohorts: families of cases that normal sampling does not reach, each with a name for reports."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from opsmith.checks.cases.boundary_values import ARRANGEMENTS, FLOATS, LARGE_EQUAL, RUNS, takes
from opsmith.checks.cases.sampling import Wanted, scalars_in_shapes
from opsmith.operators.core.arguments import DTYPES
from opsmith.signature import Parameter, ScalarType, SequenceType, Signature, TensorType
from opsmith.signature.constraints import ValueRange
from opsmith.signature.shapes import Variadic

#: Around the sizes at which blocks and vectors of kernels end, in groups of one magnitude.
_BOUNDARIES = (
    (31, 32, 33, 63, 64, 65),
    (127, 128, 129, 255, 256, 257),
    (511, 512, 513, 1023, 1024, 1025),
    (2047, 2048, 2049, 4095, 4096),
    (4097,),
)
#: As many dimensions are tried at boundaries, others with another seed.
_DIMENSIONS = 4
#: How many elements a case of served sizes may have: those sizes are meant.
_LARGE = 1 << 24
#: Numbers that few tests by hand have. Floating ones are exact in every dtype but the smallest.
_FAR = {
    "float": (-1.0, 0.0, 100.0, -100.0, 0.0078125, 1000.0),
    "int": (-1, 0, 100, -100, 1000, 70000),
}
#: What a wrong value shows where the values are of some kind: NaN and infinity say so themselves.
_CODES = {
    **dict.fromkeys(("large", "huge", "tiny", "denormal", "ends of the range"), "OPS-VALUE-RANGE"),
    **dict.fromkeys(("equal", "ties", "sorted", "reversed"), "OPS-VALUE-ORDER"),
    **dict.fromkeys(("zeros", "signed zeros"), "OPS-VALUE-ZERO"),
    **dict.fromkeys(("NaN", "infinity"), ""),
}
#: How many equal terms each half precision adds up wrong by most of its tolerance: from where the
#: sum stops growing the error grows, but so does what many roundings are granted.
_LONG = {"float16": 4097, "bfloat16": 1025}
#: Integers beyond a handful, for arguments whose upper bound does not say that they are few.
_BEYOND = (9, 17, 33, 65)
_FEW = (2, 3, 1, 5)
_MODEST = (3, 5, 2, 8, 1, 17, 4)
#: Mostly sizes that have room for an integer beyond a handful.
_ROOMY = (33, 17, 70, 9, 130, 2, 1)


@dataclass(frozen=True)
class Cohort:
    """Cases with something in common.

    Attributes:
        name: what reports call it.
        wanted: how they are sampled.
        examples: how many are tried.
        other_examples: how many are tried in a dtype that is not the usual one.
        half_examples: how many are tried in half precision.
        halves: in which dtype of half precision: the first of these that the kernel has.
        code: that of a value which is wrong here, and nowhere before.
    """

    name: str
    wanted: Wanted
    examples: int = 1
    other_examples: int = 0
    half_examples: int = 0
    halves: tuple[str, ...] = ("float16", "bfloat16")
    code: str = ""


def served(every: Sequence[Mapping[str, int]]) -> Iterator[Cohort]:
    """The sizes that the author serves."""
    for forced in every:
        wanted = Wanted(sizes=_FEW, forced=forced, max_elements=_LARGE)
        yield Cohort("served sizes", wanted, 2, code="OPS-SIZE-BOUNDARY")


def sizes(signature: Signature, seed: int) -> Iterator[Cohort]:
    """Dimensions at boundaries of tiles, odd ones, many of them, and long lists."""
    rng = random.Random(seed)
    # Of runs that may overlap, many add up one value again and again. Such roundings do not cancel,
    # and the tolerance counts values, not how often each is added.
    runs = {
        str(dim)
        for parameter in signature.tensors
        if parameter.tensor_type and parameter.tensor_type.shape
        if any(isinstance(c, ValueRange) and c.start for c in parameter.constraints)
        for dim in parameter.tensor_type.shape.dims
    }
    names = [name for name in signature.dims if name not in runs]
    some = rng.sample(names, min(len(names), _DIMENSIONS))
    for name in some:
        for group in _BOUNDARIES:
            wanted = Wanted(sizes=_FEW, forced={name: rng.choice(group)})
            yield Cohort("boundary sizes", wanted, code="OPS-SIZE-BOUNDARY")
    if len(names) > 1 or signature.variadic_dims:
        wanted = Wanted(sizes=(5, 7, 9, 11, 13, 15, 17))
        yield Cohort("odd sizes", wanted, 4, code="OPS-SIZE-BOUNDARY")
    # After the boundaries: a kernel that is wrong for many elements adds up nothing.
    # Any dimension may be added up, and half precision cannot step through many terms of one sign.
    for name in names:
        for half, length in _LONG.items():
            yield _long_sums(name, length, RUNS, (half,))
    for name in some:
        # Equal numbers add up to more than half precision holds.
        yield _long_sums(name, _LONG["float16"], LARGE_EQUAL, tuple(_LONG))
    if signature.variadic_dims or any(_any_rank(p) for p in signature.tensors):
        wanted = Wanted(sizes=(2, 1, 3), ranks=(4, 5))
        yield Cohort("many dimensions", wanted, 4, code="OPS-SIZE-RANK")
    if any(p.is_tensor_list or isinstance(p.type, SequenceType) for p in signature.parameters):
        wanted = Wanted(sizes=(2, 3, 1), lengths=(5, 7, 9))
        yield Cohort("long lists", wanted, 3, code="OPS-SIZE-LIST")


def fixed_dtypes(signature: Signature) -> frozenset[str]:
    """The dtypes of the tensors whose dtype does not vary."""
    types = [p.tensor_type for p in signature.tensors]
    return frozenset(
        type_.dtypes.names[0]
        for type_ in types
        if type_ is not None and type_.shape is not None and not type_.dtypes.generic
    )


def _long_sums(name: str, length: int, values: str, halves: tuple[str, ...]) -> Cohort:
    wanted = Wanted(sizes=_FEW, forced={name: length}, values=values)
    code = "OPS-VALUE-ACCUMULATION"
    return Cohort("long sums", wanted, examples=0, half_examples=2, halves=halves, code=code)


def values(signature: Signature, dtype: str | None) -> Iterator[Cohort]:
    """Tensors of other values than normally distributed ones."""
    for kind in (*FLOATS, *ARRANGEMENTS):
        if any(takes(p, _dtype(p, dtype), kind) for p in signature.tensors):
            # One element of them has to meet what the operator does with it.
            examples = 8 if kind in ("NaN", "infinity") else 3
            yield Cohort(kind, Wanted(sizes=_MODEST, values=kind), examples, 2, code=_CODES[kind])


def arguments(signature: Signature) -> Iterator[Cohort]:
    """Numbers far from 1, every declared choice, and two arguments that are one tensor."""
    sizes = scalars_in_shapes(signature)
    numbers = [
        (p, kind) for p in signature.parameters if (kind := _number_kind(p)) and p.name not in sizes
    ]
    for parameter, kind in numbers[:_DIMENSIONS]:
        for number in _FAR[kind]:
            given = {parameter.name: _as_given(parameter, number)}
            wanted = Wanted(sizes=_MODEST, given=given)
            yield Cohort("numbers", wanted, code="OPS-ARGUMENT-NUMBER")
    open_integers = [p for p in signature.parameters if _is_open(p, p.name in sizes)]
    for parameter in open_integers[:_DIMENSIONS]:
        for number in _BEYOND:
            wanted = Wanted(sizes=_ROOMY, given={parameter.name: _as_given(parameter, number)})
            yield Cohort("numbers", wanted, code="OPS-ARGUMENT-NUMBER")
    for parameter in signature.parameters:
        if isinstance(parameter.type, ScalarType):
            for choice in parameter.type.choices:
                wanted = Wanted(sizes=_MODEST, given={parameter.name: choice})
                yield Cohort("choices", wanted, code="OPS-ARGUMENT-NUMBER")
    for first, second in itertools.islice(_alike(signature), 4):
        equal = Wanted(sizes=(3, 5, 2, 8), same=(first, second), square=True)
        yield Cohort("same tensor", equal, 2, code="OPS-ARGUMENT-SAME")


def overlaps(signature: Signature) -> Iterator[Cohort]:
    """What is read lies in the memory that the call writes."""
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
        # Of tensors that never have one shape, none of hundreds of samples would do.
        ranks = {rank for type_ in (one, other) if (rank := _rank(type_)) is not None}
        if len(ranks) < 2:
            yield first.name, second.name


def _rank(type_: TensorType) -> int | None:
    """How many dimensions a tensor has; `None` where the declaration leaves it open."""
    dims = None if type_.shape is None else type_.shape.dims
    if dims is None or any(isinstance(dim, Variadic) for dim in dims):
        return None
    return len(dims)


def _number_kind(parameter: Parameter) -> str:
    """``int`` or ``float`` for numbers that the declaration does not bound; empty otherwise."""
    type_ = parameter.type
    if not isinstance(type_, ScalarType | SequenceType) or parameter.constraints:
        return ""
    if isinstance(type_, ScalarType) and type_.choices:
        return ""
    return type_.kind if type_.kind in _FAR else ""


def _is_open(parameter: Parameter, in_shapes: bool) -> bool:
    """Whether an argument is integers of which normal sampling draws no more than a handful."""
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
    """`number` as an argument; several of it, where a sequence is expected."""
    type_ = parameter.type
    if isinstance(type_, SequenceType):
        return [number] * (2 if type_.length is None else type_.length)
    return number


def _any_rank(parameter: Parameter) -> bool:
    type_ = parameter.tensor_type
    return type_ is not None and type_.shape is None


def _dtype(parameter: Parameter, generic: str | None) -> torch.dtype:
    type_ = parameter.tensor_type
    assert type_ is not None
    fixed = type_.shape is not None and not type_.dtypes.generic
    return DTYPES[type_.dtypes.names[0] if fixed else generic or "float32"]
