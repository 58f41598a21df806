"""Test whether two sets of samples differ: the Mann-Whitney test, exact if there are no ties.

H. Mann and D. Whitney, "On a Test of Whether one of Two Random Variables is Stochastically Larger
than the Other", Annals of Mathematical Statistics 18, 1947. The test assumes no distribution of the
times; they are never normal. Several tests at once are corrected as in S. Holm, "A Simple
Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of Statistics 6, 1979.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

#: Up to this many pairs the distribution is computed exactly; for more, the normal approximation is
#: close enough.
_EXACT = 2500


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the probability of a difference at least as large as this one by chance alone.

    Args:
        first: samples.
        second: other samples; their number may differ.

    Returns:
        The two-sided p-value; 1 if there are no samples.
    """
    m, n = len(first), len(second)
    if not m or not n:
        return 1.0
    below = sum((a < b) + (a == b) / 2 for a in first for b in second)
    smaller = min(below, m * n - below)
    merged = sorted([*first, *second])
    ties = len(set(merged)) < len(merged)
    if not ties and m * n <= _EXACT:
        tail = sum(_ways(m, n, u) for u in range(int(smaller) + 1))
        return min(1.0, 2 * tail / math.comb(m + n, m))
    counts = [merged.count(value) for value in set(merged)]
    total = m + n
    tied = sum(count**3 - count for count in counts) / (total * (total - 1))
    variance = m * n / 12 * (total + 1 - tied)
    if variance <= 0:
        return 1.0
    distance = max(0.0, m * n / 2 - smaller - 0.5)
    return math.erfc(distance / math.sqrt(2 * variance))


@cache
def _ways(m: int, n: int, u: int) -> int:
    """Count the orders of m and n samples in which exactly u pairs are in order."""
    if u < 0 or u > m * n:
        return 0
    if m == 0 or n == 0:
        return 1
    return _ways(m - 1, n, u - n) + _ways(m, n - 1, u)


def holm(values: Sequence[float]) -> list[float]:
    """Adjust the p-values of several tests, so that all together err as rarely as one test.

    Args:
        values: p-values.

    Returns:
        The adjusted p-values, in the same order.
    """
    order = sorted(range(len(values)), key=lambda position: values[position])
    adjusted = [1.0] * len(values)
    largest = 0.0
    for rank, position in enumerate(order):
        largest = max(largest, min(1.0, (len(values) - rank) * values[position]))
        adjusted[position] = largest
    return adjusted
