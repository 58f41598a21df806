"""Bounds that random numbers with a stated distribution do not leave."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

#: The logarithm of twice the number of right operators among which one is expected to be called
#: wrong by one test.
_LOG = math.log(2e10)
_BINS = 32
_LAGS = (1, 2, 3, 4, 8, 16, 32)


def off_distribution(draws: Sequence[Tensor], share: float | None) -> str:
    """Return what is wrong with the frequencies of values; empty if nothing is.

    Args:
        draws: the values of each draw: bools, or numbers in [0, 1].
        share: the probability of True; `None` for numbers, which are uniform.
    """
    values = torch.cat(list(draws)).double()
    if share is not None:
        found, most = float(values.sum()), len(values) * share
        room = _room(len(values) * share * (1 - share), 1.0)
        if abs(found - most) <= room:
            return ""
        return f"{found:.0f} of {len(values)} are True, expected {most:.0f} ± {room:.0f}"
    if not bool(((values >= 0) & (values <= 1)).all()):
        return "a number is outside [0, 1]"
    expected = len(values) / _BINS
    if expected < 8:
        return ""
    bins = torch.histc(values, _BINS, 0, 1)
    chi = float(((bins - expected) ** 2).sum()) / expected
    halves = torch.tensor([_BINS - 1, chi], dtype=torch.float64) / 2
    if float(torch.special.gammaincc(*halves)) >= 2 * math.exp(-_LOG):
        return ""
    return (
        f"{len(values)} numbers are not uniform in [0, 1]: chi-square is {chi:.0f} with "
        f"{_BINS - 1} degrees of freedom"
    )


def dependence(draws: Sequence[Tensor], share: float | None) -> str:
    """Return which values go with which others; empty if all are independent.

    Args:
        draws: the values of each draw, equally many in each.
        share: the probability of True; `None` for numbers, which are uniform in [0, 1].
    """
    centred = torch.stack([draw.double() for draw in draws]) - (0.5 if share is None else share)
    for lag in _LAGS:
        if lag < centred.shape[1] and _correlated(centred[:, :-lag], centred[:, lag:], share):
            apart = "neighbouring values" if lag == 1 else f"values {lag} apart"
            return f"{apart} are correlated"
    if _correlated(centred[:-1], centred[1:], share):
        return "values at one place in two draws are correlated"
    return ""


def _correlated(one: Tensor, other: Tensor, share: float | None) -> bool:
    most = 0.25 if share is None else 1.0
    variance = 1 / 12 if share is None else share * (1 - share)
    # Given all of `one`, each product is a step of a martingale.
    room = _room(variance * float((one**2).sum()), most)
    return abs(float((one * other).sum())) > room


def _room(variance: float, most: float) -> float:
    """Return how far a sum of terms up to `most` may be off, by Bernstein's inequality."""
    third = most * _LOG / 3
    return third + math.sqrt(third**2 + 2 * variance * _LOG)
