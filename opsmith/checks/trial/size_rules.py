"""Find the rule by which sizes decide whether a case fails: where C is no multiple of 4."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import SIZES_TOLD, Failure
from opsmith.checks.cases.sampling import SIZES, Wanted
from opsmith.checks.numerics.oracle import RefusedError
from opsmith.checks.trial.disagreement import sizes_of
from opsmith.checks.trial.trial import Trial

Numbers = Mapping[str, int]
"""The sizes and whole numbers of a case, by name."""

#: Number of samples of many sizes, the seconds for them, and the sizes beside those of `SIZES`.
_SAMPLES, _SECONDS, _ELEMENTS = 60, 4.0, 8192
_MORE_SIZES = (6, 10, 12, 15, 32, 63, 65, 128, 256, 257)
#: Least number of cases on each side of a rule, and of different numbers among them.
_CASES, _NUMBERS = 4, 3
#: Numbers that kernels work in multiples of.
_BLOCKS = (2, 3, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class Rule:
    """A condition on one or two numbers that holds in each case that fails, and in no other.

    Attributes:
        words: the condition.
        holds: whether it holds for some numbers.
        names: the numbers that it is about.
        least: how many different numbers must have failed; 1 where the rule is about one number.
        code: the failure code of a size that it is about; empty for none.
        above: the largest number that does not fail, of a rule on larger ones.
    """

    words: str
    holds: Callable[[Numbers], bool]
    names: tuple[str, ...]
    least: int = _NUMBERS
    code: str = "OPS-SIZE-BOUNDARY"
    above: int | None = None


def tell_sizes(trial: Trial, failure: Failure, body: Callable[[Case], None]) -> None:
    """Add to a failure the rule of the sizes that have it, and its code, if a rule is seen.

    Args:
        trial: draws further cases of many sizes.
        failure: the failure of a call of normal values.
        body: raises an exception if a case fails.
    """
    case = failure.case
    told = failure.code.startswith(("OPS-VALUE-WRONG", "OPS-SIZE-", "OPS-CALL-RAISED"))
    if not told or case is None or failure.final or trial.only_registered:
        return
    cases: dict[bool, list[Numbers]] = {True: [], False: [_numbers(case)]}
    end = time.monotonic() + _SECONDS

    def tried(case: Case) -> None:
        if time.monotonic() > end:
            return
        compared = trial.counts.compared
        try:
            body(case)
        except RefusedError:
            raise
        except Exception:
            cases[False].append(_numbers(case))
        else:
            if trial.counts.compared > compared:  # results without elements are right whatever
                cases[True].append(_numbers(case))

    def draw(examples: int, sizes: Sequence[int] = SIZES, forced: Numbers | None = None) -> None:
        most = max(_ELEMENTS, 2 * case.numel)
        wanted = Wanted(sizes=tuple(sizes), forced=forced or {}, max_elements=most, inexact=True)
        dtypes = (case.dtype,)
        trial.each(tried, dtypes=dtypes, wanted=wanted, examples=examples, registered_cases=False)

    near = {size + step for size in sizes_of(case).values() for step in (-1, 0, 1)}
    draw(_SAMPLES, [*SIZES, *_MORE_SIZES, *sorted(near - {-1})])
    for name, size in sizes_of(case).items():
        draw(_CASES, forced={name: size})
    rule = find_rule(cases[False], cases[True])
    while rule is not None and rule.above is not None and rule.names[0] in sizes_of(case):
        # Find where it begins.
        name, *_ = rule.names
        middle = (rule.above + min(numbers[name] for numbers in cases[False])) // 2
        tried_before = len(cases[True]) + len(cases[False])
        if middle == rule.above:
            break
        draw(2, forced={name: middle})
        rule = find_rule(cases[False], cases[True])
        if len(cases[True]) + len(cases[False]) == tried_before:
            break
    if rule is None:
        return
    verb = "raises" if failure.code.startswith("OPS-CALL") else "wrong"
    count = f"{len(cases[False])} cases, and {len(cases[True])} others are right"
    failure.args = (f"{failure}\n{SIZES_TOLD}{verb} where {rule.words} ({count})",)
    if rule.code and verb == "wrong":
        of_size = rule.names[0] in sizes_of(case)
        failure.code = rule.code if of_size else "OPS-ARGUMENT-NUMBER"


def _numbers(case: Case) -> Numbers:
    given = {name: value for name, value in case.values.items() if type(value) is int}
    return {**given, **sizes_of(case)}


def find_rule(failing: Sequence[Numbers], right: Sequence[Numbers]) -> Rule | None:
    """Return the simplest rule that parts all cases; `None` without one, or with too few cases."""
    if min(len(failing), len(right)) < _CASES:
        return None
    names = [name for name in failing[0] if all(name in each for each in (*failing, *right))]
    return next(
        (rule for rule in _rules(names, failing, right) if _fits(rule, failing, right)), None
    )


def _fits(rule: Rule, failing: Sequence[Numbers], right: Sequence[Numbers]) -> bool:
    def different(cases: Sequence[Numbers]) -> int:
        return len({tuple(case[name] for name in rule.names) for case in cases})

    return (
        all(map(rule.holds, failing))
        and not any(map(rule.holds, right))
        and different(failing) >= rule.least
        and different(right) >= _NUMBERS
    )


def _rules(
    names: Sequence[str], failing: Sequence[Numbers], right: Sequence[Numbers]
) -> Iterator[Rule]:
    for name in names:
        one = (name,)
        for number in {case[name] for case in failing[:1]}:
            words = f"{name} is {number}"
            code = "OPS-SIZE-SMALL" if number in (0, 1) else "OPS-SIZE-BOUNDARY"
            yield Rule(words, lambda c, n=name, v=number: c[n] == v, one, 1, code)
        words, code = f"{name} is 0 or 1", "OPS-SIZE-SMALL"
        yield Rule(words, lambda c, n=name: c[n] in (0, 1), one, 2, code)
        for block in _BLOCKS:
            yield Rule(
                f"{name} is no multiple of {block}", lambda c, n=name, b=block: c[n] % b != 0, one
            )
            yield Rule(
                f"{name} is a multiple of {block}", lambda c, n=name, b=block: c[n] % b == 0, one
            )
        most = max(case[name] for case in right)
        if most:  # what fails wherever there is an element says nothing of sizes
            code = "OPS-SIZE-BOUNDARY" if most > 1 else ""
            words = f"{name} > {most}"
            yield Rule(words, lambda c, n=name, m=most: c[n] > m, one, code=code, above=most)
        least = min(case[name] for case in right)
        yield Rule(f"{name} < {least}", lambda c, n=name, m=least: c[n] < m, one)
    for first in names:
        for second in names:
            both = (first, second)
            if first < second:
                words = f"{first} and {second} are"
                yield Rule(f"{words} equal", lambda c, b=both: c[b[0]] == c[b[1]], both, code="")
                words += " not"
                yield Rule(f"{words} equal", lambda c, b=both: c[b[0]] != c[b[1]], both, code="")
            if first != second:
                words = f"{first} > {second}"
                yield Rule(words, lambda c, b=both: c[b[0]] > c[b[1]], both, code="")
