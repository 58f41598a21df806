"""Compare a benchmark with an earlier one: find the figures that changed by more than chance.

Two sets of samples differ by the Mann-Whitney test, exact if there are no ties: H. Mann and D.
Whitney, "On a Test of Whether one of Two Random Variables is Stochastically Larger than the Other",
Annals of Mathematical Statistics 18, 1947. It assumes no distribution of the times; they are never
normal. Several tests at once are corrected as in S. Holm, "A Simple Sequentially Rejective Multiple
Test Procedure", Scandinavian Journal of Statistics 6, 1979.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from opsmith.bench.figures import GRADIENT, Benchmark, Figure

#: A change has a p-value below the first number, and a relative size of at least the second.
LEVEL, LEAST = 0.01, 0.05
#: Up to this many pairs the distribution is computed exactly; for more, the normal approximation is
#: close enough.
_EXACT = 2500


@dataclass(frozen=True)
class Change:
    """The change of one figure since an earlier run.

    Attributes:
        ratio: the new time divided by the old time. If both runs timed the reference, both times
            are first divided by the reference's time of the same round, so that a slower machine
            has no effect.
        p: the probability of such a difference by chance, corrected for the number of figures.
        absolute: whether the times themselves were compared, since the reference's time is missing.
    """

    figure: Figure
    ratio: float
    p: float
    absolute: bool

    @property
    def verdict(self) -> Literal["slower", "faster", "unchanged"]:
        """The name of the change: a change is both significant and large enough to matter."""
        if self.p >= LEVEL or abs(self.ratio - 1) < LEAST:
            return "unchanged"
        return "slower" if self.ratio > 1 else "faster"

    def to_json(self) -> dict[str, Any]:
        """Return the change as plain data."""
        names = ("operator", "sizes", "dtype", "device", "name")
        return {
            **dict(zip(names, self.figure.key, strict=True)),
            "ratio": self.ratio,
            "p": self.p,
            "absolute": self.absolute,
            "verdict": self.verdict,
        }


def changes(now: Benchmark, before: Benchmark) -> list[Change]:
    """Compare every figure that both benchmarks have."""
    known = {figure.key: figure for figure in before.figures if figure.seconds}
    pairs = [(one, known[one.key]) for one in now.figures if one.seconds and one.key in known]
    found = []
    for one, other in pairs:
        absolute = not (_beside_reference(one) and _beside_reference(other))
        mine, theirs = _samples(one, absolute), _samples(other, absolute)
        ratio = statistics.median(mine) / statistics.median(theirs)
        found.append(Change(one, ratio, mann_whitney(mine, theirs), absolute))
    adjusted = holm([change.p for change in found])
    return [replace(change, p=p) for change, p in zip(found, adjusted, strict=True)]


def _beside_reference(figure: Figure) -> bool:
    return bool(figure.speedups) and figure.name not in ("reference", f"reference{GRADIENT}")


def _samples(figure: Figure, absolute: bool) -> Sequence[float]:
    return figure.seconds if absolute else [1 / speedup for speedup in figure.speedups]


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the probability of a difference at least as large as this one by chance alone.

    Args:
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
    """Adjust the p-values of several tests, so that all together err as rarely as one test."""
    order = sorted(range(len(values)), key=lambda position: values[position])
    adjusted = [1.0] * len(values)
    largest = 0.0
    for rank, position in enumerate(order):
        largest = max(largest, min(1.0, (len(values) - rank) * values[position]))
        adjusted[position] = largest
    return adjusted
