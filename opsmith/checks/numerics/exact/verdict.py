"""Compare a kernel's numbers with the reference's, over several draws of residues.

Equal residues prove an element: as formulas, kernel and reference agree at random points. Unequal
residues refute it, unless they are in doubt: the sign of a square root, a function without laws, a
constant that was rounded. Such an element is refuted if it is unequal in every draw and the values
in double precision differ by more than rounding explains; if they do not differ, it is undecided.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import torch
from torch import Tensor

from opsmith.checks.numerics.exact.arrays import CONSTANT_F, FIELDS, ROOT, Array, prime

#: Relative difference of values in double precision that rounding does not explain.
_ROUNDING = 1e-12
#: The same where nothing but signs of roots is in doubt.
_ROUNDING_ROOT = 1e-13
#: The same where a literal of single precision is involved.
_ROUNDING_SINGLE = 2e-6
_LOW = 0xFFFFFFFF
#: Number of draws, each in another field, that show by which constant two formulas differ.
_FOR_CONSTANT = 3
#: Largest numerator times denominator. Three fields have 2^90 numbers, so that of 4 million
#: formulas without a constant between them one seems to have it.
_MOST = 1 << 68


def _halves(planes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the two halves of int64 numbers: of the residues those mod p and mod q."""
    return planes & _LOW, (planes >> 32) & _LOW


@dataclass
class ExactVerdict:
    """A verdict on each element of one result, from all of its draws.

    Attributes:
        agreed: mask of the elements that were equal in some draw.
        refuted: mask of the elements that were unequal in some draw, without doubt.
        apart: mask of the elements whose values differed by more than rounding in every draw.
        pairs: the values in double precision of each draw, the kernel's and the reference's.
        residues: the residues mod p of each draw, the kernel's and the reference's.
    """

    name: str
    draws: int = 0
    agreed: Tensor = field(default_factory=lambda: torch.tensor(False))
    refuted: Tensor = field(default_factory=lambda: torch.tensor(False))
    apart: Tensor = field(default_factory=lambda: torch.tensor(True))
    pairs: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    residues: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def take(self, found: Array, right: Array) -> None:
        """Add a draw of the kernel's numbers and of the reference's."""
        (found_p, found_q), (right_p, right_q) = _halves(found.residues), _halves(right.residues)
        doubts_p, doubts_q = _halves(found.doubts | right.doubts)
        finite = found.values.isfinite() & right.values.isfinite()
        same_value = (found.values == right.values) | (found.values.isnan() & right.values.isnan())
        certain = ((found_p != right_p) & (doubts_p == 0)) | (
            (found_q != right_q) & (doubts_q == 0)
        )
        same = (found_p == right_p) | ((found_q == right_q) & (doubts_q == 0))
        equal = torch.where(finite, same & ~certain, same_value)
        size = torch.nan_to_num(right.values.abs(), nan=0.0, posinf=0.0, neginf=0.0)
        usual = size.square().mean().sqrt() if size.numel() else size.sum()
        allowed = torch.full_like(size, _ROUNDING)
        allowed[doubts_p == ROOT] = _ROUNDING_ROOT
        allowed[(doubts_p & CONSTANT_F) != 0] = _ROUNDING_SINGLE
        allowed *= torch.maximum(size, usual)
        far = ~((found.values - right.values).abs() <= allowed) & ~same_value
        # An infinity that an exponential made may be a large number of another order.
        far &= finite | ((doubts_p == 0) & (doubts_q == 0))
        self.agreed = self.agreed | equal
        self.refuted = self.refuted | (certain & finite & ~equal)
        self.apart = self.apart & far
        self.draws += 1
        self.pairs.append((found.values, right.values))
        self.residues.append((found_p, right_p))

    @property
    def suspect(self) -> bool:
        """Return whether an element was unequal in every draw, and may be wrong."""
        return bool((~self.agreed & (self.refuted | self.apart)).any())

    def wrong(self, *, by_value: bool) -> Tensor:
        """Return a mask of the elements that are wrong.

        Args:
            by_value: whether values must differ as well, as where arguments may be related: then
                formulas that differ for others are no fault.
        """
        unequal = ~self.agreed & (self.refuted | self.apart)
        return unequal & self.apart if by_value else unequal

    @property
    def undecided(self) -> int:
        """Return the number of elements that are neither equal nor wrong."""
        return int((~self.agreed & ~self.refuted & ~self.apart).sum())

    def describe(self, wrong: Tensor) -> str:
        """Describe the first wrong element, in reals as well."""
        place = tuple(
            int(i) for i in torch.unravel_index(wrong.flatten().int().argmax(), wrong.shape)
        )
        found, right = (float(values[place]) for values in self.pairs[0])
        where = f"{self.name}{list(place)}" if place else self.name
        count, total = int(wrong.sum()), wrong.numel()
        off = abs(found - right)
        relative = f", {off / abs(right):.2g} of it" if right and off else ""
        reals = (
            f"in double precision it is {found:.17g} in place of {right:.17g}, off by {off:.2g}"
            f"{relative}"
            if off
            else f"in double precision both are {right:.17g} for these arguments"
        )
        certain = bool(self.refuted[place])
        how = (
            "is not the reference's formula"
            if certain
            else "differs by more than rounding in double precision explains"
        )
        do = "are" if certain else "do"
        also = f", and so {do} {count - 1} more of {total} elements" if count > 1 else ""
        return f"{where} {how}{also}{_places(wrong)}{self._constant(place)}: {reals}"

    def _constant(self, place: tuple[int, ...]) -> str:
        """Return by which constant an element's formula is off, as a part of a message."""
        if self.draws < _FOR_CONSTANT or not self.refuted[place]:
            return ""
        draws = self.residues[:_FOR_CONSTANT]
        found, right = ([int(planes[i][place]) for planes in draws] for i in (0, 1))
        fields = [prime(draw % FIELDS) for draw in range(_FOR_CONSTANT)]
        between = _constant_between(found, right, fields)
        if between is None:
            return ""
        how, number = between
        if number < 0 and how == "plus":
            how, number = "minus", -number
        return f", but that formula {how} {decimal(number)}"


def _places(wrong: Tensor) -> str:
    """Return from which index on elements are wrong, if so, as a part of a message."""
    texts = []
    for dim, size in enumerate(wrong.shape):
        rows = wrong.movedim(dim, 0).reshape(size, -1).any(1)
        first = int(rows.int().argmax())
        if first and bool(rows[first:].all()):
            texts.append(
                f"from {first} on in dim {dim}" if first < size - 1 else f"last in dim {dim}"
            )
    return f" ({', '.join(texts)})" if texts and int(wrong.sum()) > 1 else ""


def first_wrong(verdicts: Sequence[ExactVerdict], *, by_value: bool) -> tuple[str, bool] | None:
    """Describe the first wrong element of the results, and say whether its formula is refuted."""
    for verdict in verdicts:
        wrong = verdict.wrong(by_value=by_value)
        if bool(wrong.any()):
            return verdict.describe(wrong), bool((wrong & verdict.refuted).any())
    return None


def _fraction_of(residues: Sequence[int], primes: Sequence[int]) -> Fraction | None:
    """Return the simplest fraction with these residues, if there is a simple one.

    Wang, "A p-adic algorithm for univariate partial fractions", 1981.
    """
    whole = math.prod(primes)
    number = 0
    for residue, modulus in zip(residues, primes, strict=True):
        other = whole // modulus
        number += residue * other * pow(other, -1, modulus)
    above, rest, below, step = whole, number % whole, 0, 1
    found: list[tuple[int, int]] = []
    while rest:
        found.append((rest * abs(step), rest if step > 0 else -rest))
        times = above // rest
        above, rest, below, step = rest, above - times * rest, step, below - times * step
    size, numerator = min(found, default=(_MOST, 0), key=lambda one: one[0])
    return Fraction(numerator, size // abs(numerator)) if size < _MOST else None


def _constant_between(
    found: Sequence[int], right: Sequence[int], primes: Sequence[int]
) -> tuple[str, Fraction] | None:
    """Return what makes the one formula of the other: ``plus`` or ``times``, and a constant.

    The residues of each formula are those in the fields of `primes`.
    """
    triples = list(zip(found, right, primes, strict=True))
    added = _fraction_of([(one - other) % modulus for one, other, modulus in triples], primes)
    if added is not None:
        return "plus", added
    if any(other % modulus == 0 for _, other, modulus in triples):
        return None
    ratios = [one * pow(other, -1, modulus) % modulus for one, other, modulus in triples]
    factor = _fraction_of(ratios, primes)
    return None if factor is None else ("times", factor)


def decimal(number: Fraction) -> str:
    """Return a number as a decimal, or as a fraction where it is no short decimal."""
    rest = number.denominator
    for factor in (2, 5):
        while rest % factor == 0:
            rest //= factor
    text = f"{float(number):.15g}"
    return text if rest == 1 and Fraction(text) == number else str(number)
