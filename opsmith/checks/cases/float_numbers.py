"""Draw floating-point numbers for scalar arguments."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from opsmith.checks.cases.integer_runs import NoValue

#: Numbers that no binary dtype represents.
_INEXACT = (0.1, 0.7, 1.1, 1 / 3, 2.3, 3.3, -0.3, -1.7, 0.013)


def floats(low: Any, high: Any, *, exact: bool = True) -> st.SearchStrategy[float]:
    """Return a strategy for numbers between `low` and `high`; `None` is an open side.

    Args:
        low: the lower bound.
        high: the upper bound.
        exact: whether to draw only numbers that every dtype represents, where there are any.

    Raises:
        NoValue: the range is empty.
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
