"""Say where a declaration and its reference disagree, which is no fault of a kernel's."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from torch import Tensor

from opsmith.checks.cases.case import Case, show_shape
from opsmith.checks.cases.reference_call import run_reference
from opsmith.operators import Operator
from opsmith.signature import bind, result_shapes


def sizes_of(case: Case) -> dict[str, int]:
    """Return the size of each named dimension of a case."""
    return dict(bind(case.signature, case.described()).dims)


def other_shape(operator: Operator, case: Case) -> str:
    """Describe the first result of the reference whose shape is not the declared one; else empty.

    Args:
        case: arguments that the reference accepts.
    """
    signature = operator.signature
    if signature.data_dependent or not signature.shaped:
        return ""
    try:
        bindings = bind(signature, case.described())
        shapes = result_shapes(signature, bindings, case.values)
        returned, _ = run_reference(operator, case.values)
    except Exception:
        return ""
    many = returned if len(signature.results) > 1 else (returned,)
    for result, shape, value in zip(signature.results, shapes, many, strict=False):
        if shape is None or not isinstance(value, Tensor) or value.shape == tuple(shape):
            continue
        pairs = zip(value.shape, shape, strict=False)
        found = next((size for size, declared in pairs if size != declared), None)
        like = [name for name, size in bindings.dims.items() if size == found]
        return (
            f"declaration and reference disagree: the result is {result.type}, {show_shape(shape)} "
            f"where {bindings.text()}, and the reference gives {show_shape(value.shape)}"
            + (f", with the size of {' or '.join(like)}" if like else "")
        )
    return ""


def equal_sizes(taken: Sequence[Mapping[str, int]], refused: Sequence[Mapping[str, int]]) -> str:
    """Name two dimensions that are equal (or 1) in all calls taken, and in none refused."""
    for one, other in itertools.combinations(taken[0] if taken else (), 2):
        both = [[{sizes.get(one), sizes.get(other)} for sizes in all_] for all_ in (taken, refused)]
        for one_fits in (False, True):
            fit, unfit = ([len(x) == 1 or (one_fits and 1 in x) for x in each] for each in both)
            if all(fit) and not any(unfit):
                return (
                    f"It takes {one} and {other} only where they are equal: if they are one size, "
                    "declare one name"
                )
    return ""
