"""A benchmark beside an earlier one: which figures changed by more than chance explains."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from opsmith.bench.figures import GRADIENT, Benchmark, Figure
from opsmith.bench.significance import holm, mann_whitney

#: Rarer by chance than this, and larger than this: a change.
LEVEL, LEAST = 0.01, 0.05


@dataclass(frozen=True)
class Change:
    """What became of one figure.

    Attributes:
        figure: as it is now.
        ratio: the time now divided by the time then. Both are divided by the reference's time of
            the same round, where both runs timed it, so that a slower machine counts for nothing.
        p: how likely chance makes such a difference, corrected for the number of figures.
        absolute: whether times themselves were compared, for want of a reference.
    """

    figure: Figure
    ratio: float
    p: float
    absolute: bool

    @property
    def verdict(self) -> Literal["slower", "faster", "unchanged"]:
        """What to call it: a change is both significant and large enough to matter."""
        if self.p >= LEVEL or abs(self.ratio - 1) < LEAST:
            return "unchanged"
        return "slower" if self.ratio > 1 else "faster"

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        names = ("operator", "sizes", "dtype", "device", "name")
        return {
            **dict(zip(names, self.figure.key, strict=True)),
            "ratio": self.ratio,
            "p": self.p,
            "absolute": self.absolute,
            "verdict": self.verdict,
        }


def changes(now: Benchmark, before: Benchmark) -> list[Change]:
    """Every figure that both benchmarks have, compared.

    Args:
        now: the later one.
        before: the earlier one.
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
