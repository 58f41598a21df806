"""Unequal residues refute an element, unless they are in doubt and the values do not differ."""

from fractions import Fraction

import torch

from opsmith.checks.numerics.exact import arrays
from opsmith.checks.numerics.exact.arrays import CONSTANT_F, ROOT, Array
from opsmith.checks.numerics.exact.verdict import ExactVerdict, first_wrong


def number(value: float, p: int, q: int, doubts: int = 0) -> Array:
    planes = ([p | q << 32], [doubts | doubts << 32])
    return Array(torch.tensor([value], dtype=torch.float64), *map(torch.tensor, planes))


def verdict(*draws: tuple[Array, Array]) -> ExactVerdict:
    found = ExactVerdict("the result")
    for one, other in draws:
        found.take(one, other)
    return found


def is_wrong(found: ExactVerdict, *, by_value: bool = False) -> bool:
    return first_wrong([found], by_value=by_value) is not None


def test_equal_residues_are_equal_whatever_is_in_doubt():
    found = verdict((number(1, 5, 6, ROOT), number(1, 5, 7, ROOT)))
    assert not found.suspect and not is_wrong(found) and found.undecided == 0


def test_unequal_residues_without_doubt_are_wrong_though_the_values_are_equal():
    found = verdict((number(1, 5, 6), number(1, 8, 6)))
    assert found.suspect and is_wrong(found)
    message, refuted = first_wrong([found], by_value=False)
    assert refuted
    assert message == (
        "the result[0] is not the reference's formula: in double precision both are 1 for these "
        "arguments"
    )


def test_arguments_that_may_be_related_are_judged_by_values_too():
    assert not is_wrong(verdict((number(1, 5, 6), number(1, 8, 6))), by_value=True)
    assert is_wrong(verdict((number(1, 5, 6), number(1 + 1e-9, 8, 6))), by_value=True)


def test_what_is_in_doubt_is_undecided_where_the_values_agree():
    found = verdict((number(1, 5, 6, ROOT), number(1, 8, 9)))
    assert not found.suspect and found.undecided == 1


def test_what_is_in_doubt_is_wrong_where_the_values_differ_in_every_draw():
    apart = (number(1, 5, 6, ROOT), number(1 + 1e-11, 8, 9))
    assert is_wrong(verdict(apart, apart))
    assert not is_wrong(verdict(apart, (number(1, 5, 6, ROOT), number(1, 8, 9))))
    # The sign of a root was the same in one draw.
    assert not is_wrong(verdict(apart, (number(1, 5, 6, ROOT), number(1, 5, 9))))


def test_elements_that_are_wrong_by_their_values_are_counted():
    ones, doubts = torch.ones(3, dtype=torch.float64), torch.full((3,), ROOT | ROOT << 32)
    planes = torch.arange(3)
    apart = (Array(ones, planes, doubts), Array(ones * (1 + 1e-11), planes + 5, doubts))
    message, refuted = first_wrong([verdict(apart, apart)], by_value=False)
    assert not refuted
    assert message.startswith(
        "the result[0] differs by more than rounding in double precision explains, and so do 2 "
        "more of 3 elements"
    )


def test_a_literal_of_single_precision_may_stand_for_its_neighbours():
    assert not is_wrong(verdict((number(1, 5, 6, CONSTANT_F), number(1 + 1e-7, 8, 9))))
    assert is_wrong(verdict((number(1, 5, 6, CONSTANT_F), number(1 + 1e-5, 8, 9))))


def test_infinity_and_nan_are_equal_to_themselves_alone():
    inf, nan = float("inf"), float("nan")
    assert not is_wrong(verdict((number(inf, 0, 0), number(inf, 0, 0))))
    assert not is_wrong(verdict((number(nan, 0, 0), number(nan, 0, 0))))
    assert is_wrong(verdict((number(inf, 0, 0), number(1, 5, 6))))
    assert is_wrong(verdict((number(nan, 0, 0), number(1, 5, 6))))


def in_three_fields(found: Fraction, right: Fraction) -> str:
    """Describe an element that is one number in place of another."""

    def residues(one: Fraction, prime: int) -> int:
        return one.numerator * pow(one.denominator, -1, prime) % prime

    fields = [arrays.prime(field) for field in range(3)]
    draws = [
        (number(1, residues(found, one), 6), number(1, residues(right, one), 6)) for one in fields
    ]
    message, _ = first_wrong([verdict(*draws)], by_value=False)
    return message.partition(": ")[0]


def test_the_constant_between_two_formulas_is_named():
    said = "the result[0] is not the reference's formula"
    # An argument's residues are those of no short fraction.
    drawn = Fraction(2**89 - 1, 3**50)
    off = Fraction(1, 10**20)
    assert in_three_fields(drawn + off, drawn) == f"{said}, but that formula plus 1e-20"
    assert in_three_fields(drawn - off, drawn) == f"{said}, but that formula minus 1e-20"
    assert in_three_fields(drawn / 3, drawn) == f"{said}, but that formula times 1/3"
    off = Fraction(10**7 + 1, 10**7)
    assert in_three_fields(drawn * off, drawn) == f"{said}, but that formula times 1.0000001"
    assert in_three_fields(drawn * drawn, drawn) == said


def test_a_fault_from_some_index_on_is_named_so():
    def grid(wrong: list[int]) -> str:
        planes = torch.arange(12).reshape(3, 4)
        other = planes.clone()
        other.flatten()[wrong] += 1
        values, doubts = torch.ones(3, 4, dtype=torch.float64), torch.zeros_like(planes)
        one, two = (Array(values, residues, doubts) for residues in (planes, other))
        return first_wrong([verdict((one, two))], by_value=False)[0].partition(": ")[0]

    said = "the result[0, 3] is not the reference's formula, and so are 2 more of 12 elements"
    assert grid([3, 7, 11]) == f"{said} (last in dim 1)"
    assert grid([3, 4, 5]) == said
    assert grid([6, 7, 10, 11]).endswith(" (from 1 on in dim 0, from 2 on in dim 1)")
