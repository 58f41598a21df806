"""Find the constant by which two formulas differ, from what they are in several fields."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

#: Largest numerator times denominator. Three fields have 2^90 numbers, so that of 4 million
#: formulas without a constant between them one seems to have it.
_MOST = 1 << 68


def fraction_of(residues: Sequence[int], primes: Sequence[int]) -> Fraction | None:
    """Return the simplest fraction with these residues, if there is a simple one.

    Wang, "A p-adic algorithm for univariate partial fractions", 1981.
    """
    whole = math.prod(primes)
    number = 0
    for residue, prime in zip(residues, primes, strict=True):
        other = whole // prime
        number += residue * other * pow(other, -1, prime)
    above, rest, below, step = whole, number % whole, 0, 1
    found: list[tuple[int, int]] = []
    while rest:
        found.append((rest * abs(step), rest if step > 0 else -rest))
        times = above // rest
        above, rest, below, step = rest, above - times * rest, step, below - times * step
    size, numerator = min(found, default=(_MOST, 0), key=lambda one: one[0])
    return Fraction(numerator, size // abs(numerator)) if size < _MOST else None


def constant_between(
    found: Sequence[int], right: Sequence[int], primes: Sequence[int]
) -> tuple[str, Fraction] | None:
    """Return what makes the one formula of the other: ``plus`` or ``times``, and a constant.

    Args:
        found: the residues of one formula, in each field.
        right: the residues of the other.
        primes: the primes of the fields.
    """
    triples = list(zip(found, right, primes, strict=True))
    added = fraction_of([(one - other) % prime for one, other, prime in triples], primes)
    if added is not None:
        return "plus", added
    if any(other % prime == 0 for _, other, prime in triples):
        return None
    ratios = [one * pow(other, -1, prime) % prime for one, other, prime in triples]
    factor = fraction_of(ratios, primes)
    return None if factor is None else ("times", factor)


def decimal(number: Fraction) -> str:
    """Return a number as a decimal, or as a fraction where it is no short decimal."""
    rest = number.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    text = f"{float(number):.15g}"
    return text if rest == 1 and Fraction(text) == number else str(number)
