"""Find the dimensions whose long sizes take a reference too long, and what there is time for.

A loop in Python calls PyTorch's operators again for every place of a dimension, and a comparison of
all places with each other makes a table of all pairs. The right results of a single case take many
runs of the reference, so a long loop or a large table would use up the time of a whole row. Calls
and elements are counted, not timed: the same sizes are chosen on a slow machine as on a fast one,
and nothing that a kernel does changes them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

from hypothesis import reject

from opsmith.checks.cases.case import Case
from opsmith.checks.cases.reference_call import run_reference
from opsmith.checks.cases.sampling import cases
from opsmith.checks.cases.search import search
from opsmith.checks.cases.wanted import Wanted
from opsmith.compat.torch_tracing import TorchDispatchMode
from opsmith.operators import Operator
from opsmith.operators.core.arguments import tensors_in
from opsmith.signature import bind
from opsmith.signature.solving.fitting import Fitting

#: Largest number of calls in one run of the reference: a case then takes a second or two.
_CALLS = 6000
#: A size that is always allowed, however many calls a loop of this length makes.
_LEAST = 65
#: Largest number of elements of a table of all pairs: the runs of a case then take seconds.
_TABLE = 1 << 23
#: Why sizes are limited, in a report.
REASON = "the reference loops in Python, or computes for all pairs"
#: The same limits for runs in which each step is rounded by itself, and a backward runs along.
_CALLS_BY_STEPS, _LEAST_BY_STEPS = 150, 9
#: A size, and the distance to a longer one, to measure how the number of calls grows. Fewer calls
#: than this for each place (as if a size of 1 is treated separately) are no loop.
_SHORT, _FURTHER = 8, 16
_LOOP = 0.5
#: The least power of a size that the largest tensor grows with where it is a table of pairs.
_SQUARE = 1.5
#: Sizes of the other dimensions, the preferred size first.
_FEW = (2, 3, 1)
_SECONDS = 5.0


class _CallCounter(TorchDispatchMode):
    """Counts the calls of PyTorch's operators in the block, and the largest result's elements."""

    def __init__(self) -> None:
        super().__init__()
        self.count = self.largest = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Count a call, and let it happen."""
        self.count += 1
        made = func(*args, **(kwargs or {}))
        self.largest = max(self.largest, *(one.numel() for one in tensors_in(made)), 0)
        return made


def largest_sizes(
    operator: Operator, dtype: str | None, *, by_steps: bool = False
) -> dict[str, int]:
    """Return the largest size that there is time for, of each dimension that has one.

    Args:
        operator: the operator; its reference is run twice for each dimension.
        dtype: the generic dtype of the runs.
        by_steps: whether most cases take runs in which each step is rounded by itself, as for
            gradients: such runs take a hundred times as long.

    Returns:
        Sizes by dimension, none for one without a loop or pairs, or for which no call was found.
    """
    fitting = Fitting(operator.signature)
    calls, least = (_CALLS_BY_STEPS, _LEAST_BY_STEPS) if by_steps else (_CALLS, _LEAST)
    growth = _growth(operator, dtype)
    loops = {name: each for name, (each, _) in growth.items() if each >= _LOOP}
    if by_steps and loops:
        calls //= len(loops)  # in a sample, all of them may be long
    limits = {name: int(calls / each) for name, each in loops.items()}
    for name, (_, pairs) in growth.items():
        if pairs and not by_steps:
            limits[name] = min(limits.get(name, _TABLE), math.isqrt(int(_TABLE / pairs)))
    found = {}
    for name, limit in limits.items():
        most = max(least, limit)
        # A condition may allow only sizes that are larger than `most`.
        found[name] = max(most, fitting.near(name, most) or 0)
    return found


# Both limits are asked for in one check.
@functools.lru_cache(maxsize=4)
def _growth(operator: Operator, dtype: str | None) -> Mapping[str, tuple[float, float]]:
    """Return the number of calls for each place of a dimension, and of elements for each pair.

    Where the largest tensor is no table of pairs, that is 0.
    """
    signature = operator.signature
    fitting = Fitting(signature)
    found = {}
    for name in signature.dims:
        if name in signature.variadic_dims:
            continue
        short = fitting.near(name, _SHORT)
        long = fitting.near(name, short + _FURTHER) if short is not None else None
        if short is None or long is None or short == long:
            continue
        few, many = (_counted(operator, dtype, name, size) for size in (short, long))
        if few is None or many is None:
            continue
        squared = 0 < few.largest * (long / short) ** _SQUARE < many.largest
        found[name] = (
            (many.count - few.count) / (long - short),
            many.largest / long**2 if squared else 0.0,
        )
    return found


def is_within(case: Case, most: Mapping[str, int]) -> bool:
    """Return whether no dimension of a case is larger than `most` allows."""
    if not most:
        return True
    dims = bind(case.signature, case.described()).dims
    return all(dims.get(name, 0) <= size for name, size in most.items())


def described(most: Mapping[str, int], what: str) -> str:
    """Describe for a report how far the sizes of limited dimensions go."""
    return (
        f"{REASON}, so {what} keep to {limits(most)}; to try more, vectorise a loop, or "
        "register larger"
    )


def limits(most: Mapping[str, int]) -> str:
    """Return the sizes as text: ``N <= 352, M <= 352``."""
    return ", ".join(f"{name} <= {size}" for name, size in most.items())


def _counted(operator: Operator, dtype: str | None, name: str, size: int) -> _CallCounter | None:
    """Count the calls of one run with a size; `None` if no run succeeds."""
    counts = []

    def count(case: Case) -> None:
        try:
            with _CallCounter() as calls:
                _, results = run_reference(operator, case.values)
        except Exception:
            reject()  # a failure would be searched for a smaller one
        if calls.largest <= case.numel + sum(result.numel() for result in results):
            calls.largest = 0  # sizes are limited by the elements of a case already
        counts.append(calls)

    wanted = Wanted(dtype=dtype, sizes=_FEW, forced={name: size})
    strategy = cases(operator.signature, wanted)
    search(strategy, count, examples=1, seed=0, seconds=_SECONDS, size=lambda case: case.numel)
    return counts[0] if counts else None
