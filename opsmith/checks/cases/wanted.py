"""Describe what a check asks of the cases that are sampled for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opsmith.checks.cases import layouts

#: Sizes to sample; Hypothesis shrinks towards the front. Odd sizes and neighbours of powers of two
#: leave a remainder in vectorised loops.
SIZES = (1, 2, 3, 0, 4, 5, 7, 8, 9, 16, 17, 31, 33, 64, 130)
#: Sizes to sample for a compiler, which treats 0 and 1 as constants, also if a size less one is 1.
DYNAMIC_SIZES = (5, 4, 6, 7, 8, 9)


@dataclass(frozen=True)
class Wanted:
    """A description of the cases to sample.

    Attributes:
        dtype: the generic dtype; `None` where every dtype is fixed.
        distinct: whether dimensions of different names have different sizes.
        forced: fixed sizes of some dimensions; of ``?N``, at all places of the lists but one.
        most: largest sizes of some dimensions.
        layouts: the layouts that each tensor's layout is drawn from.
        max_elements: largest number of elements of all arguments, and of all results.
        ranks: numbers of dimensions that ``*names`` may stand for.
        lengths: allowed lengths of lists; ``()`` for the default ones.
        seed: decides the values, beside what is drawn, so that another run has others.
        values: kind of values of tensors (see `boundary_values`); empty for normally distributed
            values.
        alone: whether one tensor alone has this kind of values, of several that could.
        given: arguments that are not drawn.
        same: two arguments that are the same tensor.
        shift: number of elements by which the second tensor of `same` starts behind the first in
            shared memory; with 0, both are one tensor.
        square: whether all dimensions of a case have the same size.
        inexact: whether scalars may be numbers that no dtype represents, such as 0.1. Some formats
            of models store scalars in single precision.
    """

    dtype: str | None = None
    sizes: tuple[int, ...] = SIZES
    distinct: bool = False
    forced: Mapping[str, int] = field(default_factory=dict)
    most: Mapping[str, int] = field(default_factory=dict)
    layouts: tuple[str, ...] = (layouts.CONTIGUOUS,)
    max_elements: int = 8192
    ranks: tuple[int, ...] = (1, 2, 0, 3)
    lengths: tuple[int, ...] = ()
    seed: int = 0
    values: str = ""
    alone: bool = False
    given: Mapping[str, Any] = field(default_factory=dict)
    same: tuple[str, str] | tuple[()] = ()
    shift: int = 0
    square: bool = False
    inexact: bool = False
