"""Compare a benchmark with an earlier one: find the figures that changed by more than chance."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from opsmith.bench.figures import GRADIENT, Benchmark, Figure
from opsmith.bench.significance import holm, mann_whitney

#: A change has a p-value below the first number, and a relative size of at least the second.
LEVEL, LEAST = 0.01, 0.05


@dataclass(frozen=True)
class Change:
    """The change of one figure since an earlier run.

    Attributes:
        figure: the new figure.
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
    """Compare every figure that both benchmarks have.

    Args:
        now: the later benchmark.
        before: the earlier benchmark.
    """
    known = {figure.key: figure for figure in before.figures if figure.seconds}
    pairs = [(one, known[one.key]) for one in now.figures if one.seconds and one.key in known]
    found = []
    for one, other in pairs:
        absolute = not (_beside_reference(one) and _beside_reference(other))
        mine, theirs = _samples(one, absolute), _samples(other, absolute)
        ratio = statistics.median(mine) / statistics.median(theirs)
        found.append(Change(one, ratio, mann_whitney(mine, theirs), absolute))
    adjusted = holm([change.p for change in found])
    return [
        Change(change.figure, change.ratio, p, change.absolute)
        for change, p in zip(found, adjusted, strict=True)
    ]


def _beside_reference(figure: Figure) -> bool:
    return bool(figure.speedups) and figure.name not in ("reference", f"reference{GRADIENT}")


def _samples(figure: Figure, absolute: bool) -> Sequence[float]:
    return figure.seconds if absolute else [1 / speedup for speedup in figure.speedups]
