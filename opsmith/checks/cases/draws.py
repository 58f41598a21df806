"""Draw what a case has beside tensors' values: numbers for scalars, and memory layouts."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from opsmith.checks.cases import layouts
from opsmith.checks.cases.case import Case
from opsmith.checks.cases.dependencies import reads_of
from opsmith.checks.cases.integer_runs import NoValue
from opsmith.operators.core.arguments import map_tensors
from opsmith.signature import Parameter

#: Numbers that no binary dtype represents.
_INEXACT = (0.1, 0.7, 1.1, 1 / 3, 2.3, 3.3, -0.3, -1.7, 0.013)


def lay_out_case(draw: st.DrawFn, case: Case, wanted: Sequence[str]) -> Case:
    """Return a case with drawn layouts, and with values that these layouts can hold.

    Args:
        draw: Hypothesis's function that draws.
    """
    if tuple(wanted) == (layouts.CONTIGUOUS,):
        return case
    values = dict(case.values)
    chosen: dict[str, str] = {}
    for parameter in case.signature.tensors:
        name = parameter.name
        layout = draw(st.sampled_from(wanted))
        if layout in (layouts.EXPANDED, layouts.OVERLAPPING):
            if values[name] is None or not _is_free(case, parameter):
                continue
            values[name] = map_tensors(
                values[name], functools.partial(_repeating, draw, layout=layout)
            )
        chosen[name] = layout
    return replace(case, values=values, layouts=chosen)


def begin_later(one: Tensor, other: Tensor, shift: int) -> Tensor:
    """Return the values of a tensor that begins `shift` elements behind `one` in shared memory.

    Args:
        one: the first tensor.
        other: holds the last `shift` values.
        shift: number of elements.
    """
    if one.shape != other.shape or one.numel() <= shift:
        raise NoValue
    tail = other.flatten()[one.numel() - shift :]
    return torch.cat([one.flatten()[shift:], tail]).view(one.shape)


def _is_free(case: Case, parameter: Parameter) -> bool:
    """Return whether the values of a tensor may repeat, and are neither written nor depended on."""
    if parameter.mutated or parameter.constraints:
        return False
    return not any(parameter.name in reads_of(other) for other in case.signature.parameters)


def _repeating(draw: st.DrawFn, tensor: Tensor, layout: str) -> Tensor:
    """Return a tensor whose values repeat, so that a smaller memory can hold all of them."""
    if layout == layouts.OVERLAPPING:
        return layouts.make_sliding(tensor)
    wide = [dim for dim, size in enumerate(tensor.shape) if size > 1]
    if not wide:
        return tensor
    for dim in draw(st.lists(st.sampled_from(wide), min_size=1, max_size=2, unique=True)):
        tensor = layouts.make_constant(tensor, dim)
    return tensor


def floats(low: Any, high: Any, *, exact: bool = True) -> st.SearchStrategy[float]:
    """Return a strategy for numbers between `low` and `high`; `None` is an open side.

    Args:
        exact: whether to draw only numbers that every dtype represents, where there are any.
    """
    if low is None and high is None:
        low, high = -4.0, 4.0
    lowest = float(low) if low is not None else float(high) - 4.0
    highest = float(high) if high is not None else lowest + 4.0
    if highest < lowest:
        raise NoValue
    # Every dtype represents eighths exactly, so the scalar adds no rounding error.
    eighths = [k / 8 for k in range(-32, 33) if lowest <= k / 8 <= highest]
    ordered = sorted(eighths, key=lambda value: (value != 1.0, abs(value), value < 0))
    if exact or not ordered:
        return st.sampled_from(ordered) if ordered else st.floats(lowest, highest)
    inexact = [value for value in _INEXACT if lowest <= value <= highest]
    return st.sampled_from(ordered + inexact * (1 + len(ordered) // (2 * len(_INEXACT))))
