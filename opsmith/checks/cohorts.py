"""Cohorts: families of cases that normal sampling does not reach, each with a name for reports."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from opsmith.checks.extremes import ARRANGEMENTS, FLOATS, LARGE_EQUAL, takes
from opsmith.checks.sampling import Wanted, scalars_in_shapes
from opsmith.operators.arguments import DTYPES
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
_FEW = (2, 3, 1, 5)
_MODEST = (3, 5, 2, 8, 1, 17, 4)


@dataclass(frozen=True)
class Cohort:
    """Cases with something in common.

    Attributes:
        name: what reports call it.
        wanted: how they are sampled.
        examples: how many are tried.
        other_examples: how many are tried in a dtype that is not the usual one.
        half_examples: how many are tried in half precision.
        code: that of a value which is wrong here, and nowhere before.
    """

    name: str
    wanted: Wanted
    examples: int = 1
    other_examples: int = 0
    half_examples: int = 0
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
    for name in rng.sample(names, min(len(names), _DIMENSIONS)):
        for group in _BOUNDARIES:
            wanted = Wanted(sizes=_FEW, forced={name: rng.choice(group)})
            yield Cohort("boundary sizes", wanted, code="OPS-SIZE-BOUNDARY")
        # Equal numbers add up to what half precision cannot step through one by one, or not hold.
        for kind in ("equal", LARGE_EQUAL):
            long = Wanted(sizes=_FEW, forced={name: 4097}, values=kind)
            code = "OPS-VALUE-ACCUMULATION"
            yield Cohort("long sums", long, examples=0, half_examples=2, code=code)
    if len(names) > 1 or signature.variadic_dims:
        wanted = Wanted(sizes=(5, 7, 9, 11, 13, 15, 17))
        yield Cohort("odd sizes", wanted, 4, code="OPS-SIZE-BOUNDARY")
    if signature.variadic_dims or any(_any_rank(p) for p in signature.tensors):
        wanted = Wanted(sizes=(2, 1, 3), ranks=(4, 5))
        yield Cohort("many dimensions", wanted, 4, code="OPS-SIZE-RANK")
    if any(p.is_tensor_list or isinstance(p.type, SequenceType) for p in signature.parameters):
        wanted = Wanted(sizes=(2, 3, 1), lengths=(5, 7, 9))
        yield Cohort("long lists", wanted, 3, code="OPS-SIZE-LIST")


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
