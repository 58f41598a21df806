"""Draw floating-point numbers for scalar arguments."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from opsmith.checks.cases.integer_runs import NoValue


def floats(low: Any, high: Any) -> st.SearchStrategy[float]:
    """Return a strategy for numbers between `low` and `high`; `None` is an open side.

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
    return st.sampled_from(ordered) if ordered else st.floats(lowest, highest)
