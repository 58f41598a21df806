"""Find the dimensions that a reference loops over in Python, and the sizes that there is time for.

A loop calls PyTorch's operators again for every place of a dimension. The right results of a single
case take many runs of the reference, so a long loop would use up the time of a whole row. Calls are
counted, not timed: the same sizes are chosen on a slow machine as on a fast one, and nothing that a
kernel does changes them.
"""

from __future__ import annotations

import functools
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
from opsmith.signature import bind
from opsmith.signature.solving.fitting import Fitting

#: Largest number of calls in one run of the reference: a case then takes a second or two.
_CALLS = 6000
#: A size that is always allowed, however many calls a loop of this length makes.
_LEAST = 65
#: The same limits for runs in which each step is rounded by itself, and a backward runs along.
_CALLS_BY_STEPS, _LEAST_BY_STEPS = 150, 9
#: A size, and the distance to a longer one, to measure how the number of calls grows. Fewer calls
#: than this for each place (as if a size of 1 is treated separately) are no loop.
_SHORT, _FURTHER = 8, 16
_LOOP = 0.5
#: Sizes of the other dimensions, the preferred size first.
_FEW = (2, 3, 1)
_SECONDS = 5.0


class _CallCounter(TorchDispatchMode):
    """Counts the calls of PyTorch's operators in the block."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Count a call, and let it happen."""
        self.count += 1
        return func(*args, **(kwargs or {}))


def largest_sizes(
    operator: Operator, dtype: str | None, *, by_steps: bool = False
) -> dict[str, int]:
    """Return the largest size that there is time for, of each dimension that is looped over.

    Args:
        operator: the operator; its reference is run twice for each dimension.
        dtype: the generic dtype of the runs.
        by_steps: whether most cases take runs in which each step is rounded by itself, as for
            gradients: such runs take a hundred times as long.

    Returns:
        Sizes by dimension, none for a dimension without a loop, or for which no call was found.
    """
    fitting = Fitting(operator.signature)
    calls, least = (_CALLS_BY_STEPS, _LEAST_BY_STEPS) if by_steps else (_CALLS, _LEAST)
    loops = _loops(operator, dtype)
    if by_steps and loops:
        calls //= len(loops)  # in a sample, all of them may be long
    found = {}
    for name, each in loops.items():
        most = max(least, int(calls / each))
        # A condition may allow only sizes that are larger than `most`.
        found[name] = max(most, fitting.near(name, most) or 0)
    return found


# Both limits are asked for in one check.
@functools.lru_cache(maxsize=4)
def _loops(operator: Operator, dtype: str | None) -> Mapping[str, float]:
    """Return the number of calls for each place of the dimensions that are looped over."""
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
        few, many = (_calls(operator, dtype, name, size) for size in (short, long))
        if few is None or many is None:
            continue
        each = (many - few) / (long - short)
        if each >= _LOOP:
            found[name] = each
    return found


def is_within(case: Case, most: Mapping[str, int]) -> bool:
    """Return whether no dimension of a case is larger than `most` allows."""
    if not most:
        return True
    dims = bind(case.signature, case.described()).dims
    return all(dims.get(name, 0) <= size for name, size in most.items())


def described(most: Mapping[str, int], what: str) -> str:
    """Describe for a report how far the sizes of looped dimensions go."""
    return (
        f"the reference loops in Python, so {what} keep to {limits(most)}; to try more, "
        "vectorise the reference or register larger"
    )


def limits(most: Mapping[str, int]) -> str:
    """Return the sizes as text: ``N <= 352, M <= 352``."""
    return ", ".join(f"{name} <= {size}" for name, size in most.items())


def _calls(operator: Operator, dtype: str | None, name: str, size: int) -> int | None:
    """Count the calls of one run with a size; `None` if no run succeeds."""
    counts = []

    def count(case: Case) -> None:
        try:
            with _CallCounter() as calls:
                run_reference(operator, case.values)
        except Exception:
            reject()  # a failure would be searched for a smaller one
        counts.append(calls.count)

    wanted = Wanted(dtype=dtype, sizes=_FEW, forced={name: size})
    strategy = cases(operator.signature, wanted)
    search(strategy, count, examples=1, seed=0, seconds=_SECONDS, size=lambda case: case.numel)
    return counts[0] if counts else None
