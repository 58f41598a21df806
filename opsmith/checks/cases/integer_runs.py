"""Random sequences of integers: sorted ones, and sizes with a given sum."""

from __future__ import annotations

import random


class NoValue(Exception):
    """No value satisfies the declaration."""


def increasing(
    rng: random.Random,
    count: int,
    low: int,
    high: int,
    *,
    first: int | None = None,
    last: int | None = None,
    strict: bool = False,
) -> list[int]:
    """Draw sorted integers between `low` and `high`, both included.

    Args:
        first: the first integer, if it is fixed.
        last: the last integer, if it is fixed.
        strict: whether each integer is larger than the one before it.
    """
    ends = [end for end in (first, last) if end is not None]
    if count == 0:
        if ends:
            raise NoValue
        return []
    if count == 1 and len(ends) == 2:
        if first != last:
            raise NoValue
        return [ends[0]]
    low = low if first is None else max(low, first + strict)
    high = high if last is None else min(high, last - strict)
    between = count - len(ends)
    if between and high - low + 1 < (between if strict else 1):
        raise NoValue
    if strict and between:
        middle = rng.sample(range(low, high + 1), between)
    else:
        middle = [rng.randint(low, high) for _ in range(between)]
    return [*ends[: first is not None], *sorted(middle), *ends[first is not None :]]


def parts(rng: random.Random, count: int, total: int, low: int, high: int) -> list[int]:
    """Draw sizes between `low` and `high`, both included, that add up to `total`."""
    low = max(low, 0)
    if not low * count <= total <= max(high, 0) * count:
        raise NoValue
    sizes = [low] * count
    rest = total - low * count
    while rest:
        part = rng.randrange(count)
        more = rng.randint(0, min(rest, high - sizes[part]))
        sizes[part] += more
        rest -= more
    return sizes


def shapes(
    rng: random.Random, count: int, rank: int, total: int, low: int, high: int
) -> list[list[int]]:
    """Draw shapes with sizes between `low` and `high`, and `total` elements altogether."""
    least = max(low, 0) ** rank
    return [_shape(rng, size, rank, low, high) for size in parts(rng, count, total, least, total)]


def _shape(rng: random.Random, size: int, rank: int, low: int, high: int) -> list[int]:
    if rank == 0:
        if size != 1:
            raise NoValue
        return []
    if size == 0:
        if low > 0:
            raise NoValue
        sizes = [rng.randint(0, min(4, high)) for _ in range(rank)]
        sizes[rng.randrange(rank)] = 0
        return sizes
    sizes = []
    for _ in range(rank - 1):
        fitting = [d for d in range(max(low, 1), min(size, high) + 1) if size % d == 0]
        if not fitting:
            raise NoValue
        sizes.append(rng.choice(fitting))
        size //= sizes[-1]
    sizes.append(size)
    if not low <= size <= high:
        raise NoValue
    rng.shuffle(sizes)
    return sizes
