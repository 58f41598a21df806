"""Registered cases of an operator, and pairs of cases that differ in sizes only."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from opsmith.checks.cases import layouts
from opsmith.checks.cases.case import Case
from opsmith.checks.cases.reference_call import run_reference
from opsmith.checks.cases.subject import registered
from opsmith.operators import Operator
from opsmith.operators.core.arguments import holds_tensors
from opsmith.signature import bind, result_shapes

#: Largest number of elements of a registered case in checks that run a case many times.
MODEST = 50_000


def author_cases(
    operator: Operator, dtype: str | None, seed: int, offsets: Sequence[int] = (0,)
) -> list[Case]:
    """Return the registered cases, the smallest first.

    Args:
        operator: the operator with `register_cases` functions.
        offsets: numbers to add to the seed; the functions are called once for each of them.
    """
    found: list[Case] = []
    names = [function.__name__ for function in operator.cases]
    for offset in offsets:
        for number, arguments in enumerate(registered(operator, dtype, seed + offset), 1):
            origin = f"no. {number} of {', '.join(names)}"
            if offset:
                origin += f", seed {seed + offset}"
            found.append(Case(operator.signature, arguments, {}, origin))
    return sorted(found, key=size_of)


def few_of(cases: Sequence[Case], most: int) -> list[Case]:
    """Return at most `most` of some cases, from small to large, without huge ones."""
    # Checks that run only a few cases take long for each case.
    return spread([case for case in cases if case.numel <= MODEST] or list(cases[:1]), most)


def spread(cases: Sequence[Case], most: int) -> list[Case]:
    """Return at most `most` of some cases, evenly spread from the first to the last."""
    if len(cases) <= most:
        return list(cases)
    return [cases[n * (len(cases) - 1) // max(most - 1, 1)] for n in range(most)]


def laid_out(case: Case, wanted: Sequence[str]) -> Case:
    """Return a case with every tensor in one of some layouts, by its description.

    A tensor that is written into never has the same memory for several elements.

    Args:
        case: a case; one that has layouts keeps them.
    """
    if case.layouts or tuple(wanted) == (layouts.CONTIGUOUS,):
        return case
    rng = random.Random(case.describe())
    chosen = {parameter.name: rng.choice(wanted) for parameter in case.signature.tensors}
    for parameter in case.signature.mutated:
        if chosen[parameter.name] in (layouts.EXPANDED, layouts.OVERLAPPING):
            chosen[parameter.name] = layouts.SLICED
    return case.with_layouts(chosen)


def pair_of(operator: Operator, cases: Sequence[Case]) -> tuple[Case, Case] | None:
    """Find two cases that differ in sizes only, without sizes that compilers treat specially."""
    groups: dict[Any, list[Case]] = {}
    for case in cases:
        if case.numel <= MODEST and has_no_small_size(operator, case):
            groups.setdefault(_skeleton(case), []).append(case)
    for first, *rest in groups.values():
        for other in rest:
            if shapes_of(other) != shapes_of(first):
                return first, other
    return None


def alike(operator: Operator, case: Case, seed: int) -> list[Case]:
    """Return the author's cases that differ from `case` in the values of tensors alone."""
    key = _skeleton(case), shapes_of(case)
    found = author_cases(operator, case.dtype, seed, (0, 1, 2, 3))
    same = [one for one in found if (_skeleton(one), shapes_of(one)) == key]
    return list({one.digest: one for one in same if one.digest != case.digest}.values())


def has_no_small_size(operator: Operator, case: Case) -> bool:
    """Return whether no size of an argument or result is 0 or 1, which compilers bake in."""
    sizes = [size for _, tensor in case.tensors() for size in tensor.shape]
    return min(sizes, default=2) > 1 and min(_result_sizes(operator, case), default=2) > 1


def shapes_of(case: Case) -> tuple[Any, ...]:
    """Return the shapes of all tensors of a case."""
    return tuple((name, tuple(tensor.shape)) for name, tensor in case.tensors())


def shown_shapes(case: Case) -> str:
    """Format the shapes of all tensors of a case for messages."""
    return ", ".join(f"{name} {shape}" for name, shape in shapes_of(case))


def size_of(case: Case) -> tuple[int, int]:
    """Return a sort key that is less for smaller cases."""
    return case.numel, len(case.describe())


def _result_sizes(operator: Operator, case: Case) -> list[int]:
    """Return every size of the results; none if the sizes depend on data."""
    signature = operator.signature
    if signature.data_dependent:
        return []
    try:
        if signature.shaped:
            shapes = result_shapes(signature, bind(signature, case.described()), case.values)
            return [size for shape in shapes for size in shape]
        _, results = run_reference(operator, case.values)
    except Exception:
        return []  # the error is reported when the case is run
    return [size for result in results for size in result.shape]


def _skeleton(case: Case) -> Any:
    """Return a key of the baked-in parts of a case, equal for cases that differ in sizes only."""
    parts: list[Any] = []
    for name, value in case.values.items():
        if isinstance(value, Tensor):
            parts.append((name, value.dim(), value.dtype))
        elif holds_tensors(value):
            parts.append((name, tuple((item.dim(), item.dtype) for item in value)))
        else:
            parts.append((name, repr(value)))
    return tuple(parts)
