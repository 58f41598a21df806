"""Find the rule by which sizes decide whether a case fails: where C is no multiple of 4."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from opsmith.checks.cases.case import Case
from opsmith.checks.cases.disagreement import sizes_of
from opsmith.checks.cases.failure import SIZES_TOLD, Failure
from opsmith.checks.cases.reruns.registered_cases import size_of
from opsmith.checks.cases.wanted import SIZES, Wanted
from opsmith.checks.numerics.oracle import RefusedError
from opsmith.checks.trial.trial import Trial

Facts = Mapping[str, Any]
"""The sizes of a case, and its numbers, flags and choices, by name."""

#: Number of samples of many sizes, the seconds for them, and the sizes beside those of `SIZES`.
_SAMPLES, _SECONDS, _ELEMENTS = 60, 5.0, 8192
_MORE_SIZES = (6, 10, 12, 15, 32, 63, 65, 128, 256, 257)
#: Number of steps in which the place is searched from which on cases fail.
_STEPS = 14
#: Least number of cases in all, on each side of a rule, and of different numbers among them.
_ALL, _CASES, _NUMBERS = 20, 4, 3
#: Numbers that kernels work in multiples of.
_BLOCKS = (2, 3, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class SizeRule:
    """A condition that holds in each case that fails, and in no other.

    Attributes:
        words: the condition.
        name: what it is about; empty for two sizes.
        code: the failure code, if it is about a size.
        above: the largest size that does not fail, of a rule on larger ones.
    """

    words: str
    name: str = ""
    code: str = ""
    above: int | None = None


def tell_sizes(trial: Trial, failure: Failure, body: Callable[[Case], None]) -> None:
    """Add to a failure the rule of the sizes that have it, and its code, if a rule is seen.

    Args:
        trial: draws further cases of many sizes.
        body: raises an exception if a case fails.
    """
    case = failure.case
    codes = ["OPS-VALUE-WRONG", "OPS-SIZE-BOUNDARY", "OPS-RESULT-UNWRITTEN", "OPS-CALL-RAISED"]
    codes += ["OPS-VALUE-NAN"] * (trial.counts.cohort == "normal")
    if failure.code not in codes or case is None or failure.final or trial.cases.only_registered:
        return
    own_dtype = case.dtype or trial.subject.favourite  # empty lists have none
    right: list[Facts] = []
    failing = [_facts(case)]
    wrong: list[Failure] = []
    end = time.monotonic() + _SECONDS

    def tried(case: Case) -> None:
        if time.monotonic() > end:
            return
        compared = trial.counts.compared
        try:
            body(case)
        except RefusedError:
            raise
        except Exception as error:
            failing.append(_facts(case))
            if isinstance(error, Failure) and error.code == "OPS-VALUE-WRONG":
                error.case = case
                wrong.append(error)
        else:
            if trial.counts.compared > compared:  # results without elements are right whatever
                right.append(_facts(case))

    def draw(
        examples: int, forced: Facts, sizes: Sequence[int] = SIZES, dtype: str | None = own_dtype
    ) -> bool:
        """Try further cases; return whether there was time, and all are right."""
        most, failed = max(_ELEMENTS, 2 * case.numel), len(failing)
        wanted = Wanted(sizes=tuple(sizes), forced=forced, max_elements=most, inexact=True)
        trial.sample(tried, wanted, examples, dtype)
        return len(failing) == failed and time.monotonic() < end

    sizes = sizes_of(case)
    near = {size + step for size in sizes.values() for step in (-1, 0, 1, 2, 3, size)}
    draw(_SAMPLES, {}, [*SIZES, *_MORE_SIZES, *sorted(near - {-1})])
    equal = [pair for pair in itertools.combinations(sizes, 2) if len({*map(sizes.get, pair)}) == 1]
    for names in (*((name,) for name in sizes), *equal):
        for step in (0, 1, 2):
            draw(_CASES, {name: sizes[name] + step for name in names})
    rule = find_rule(failing, right)
    if rule is None:
        # Of no element or one, a sum and a mean are equal, and a matrix and its transpose.
        both = [
            [f for f in side if all(f.get(n, 0) > 1 for n in sizes)] for side in (failing, right)
        ]
        if (found := find_rule(*both)) is not None:
            small = "but for" if len(both[0]) == len(failing) else "and not always with"
            words = f"{found.words}, {small} sizes of 0 and 1"
            (failing, right), rule = both, replace(found, words=words, above=None)
    for _ in range(_STEPS):
        if rule is None or rule.above is None or rule.name not in sizes:
            break
        least = min(facts[rule.name] for facts in failing)
        middle = (rule.above + least) // 2
        draw(2, {rule.name: middle})
        if middle == rule.above:  # a rule that holds by chance fails here
            draw(_CASES, {rule.name: middle})
            draw(_CASES, {rule.name: least})
        rule = find_rule(failing, right)
        if middle == least - 1:
            break
    if rule is not None:
        verb = "raises" if failure.code == "OPS-CALL-RAISED" else "wrong"
        words = f"{verb} where {rule.words}"
        count = f"{len(failing)} cases, and {len(right)} others are right"
        failure.args = (f"{failure}\n{SIZES_TOLD}{words} ({count})",)
        if rule.name and failure.code in codes[:3]:
            failure.code = (rule.code if rule.name in sizes else _code(rule)) or failure.code
    elif failure.code == "OPS-VALUE-NAN" and wrong:
        # A number that is not finite follows from wrong ones: they say more.
        least_wrong = min(wrong, key=lambda one: size_of(one.case or case))
        failure.args, failure.case = least_wrong.args, least_wrong.case
        failure.code = least_wrong.code
    elif failure.code == "OPS-SIZE-BOUNDARY" and any(
        sizes and all(larger[name] >= facts[name] for name in sizes)
        for larger in right
        for facts in failing
    ):
        failure.code = "OPS-VALUE-WRONG"  # larger cases are right
    if rule is not None:
        return
    end = time.monotonic() + _SECONDS
    others = itertools.takewhile(lambda dtype: dtype != own_dtype, trial.subject.dtypes)
    passed = [n for n in others if trial.counts.tally.has(n) and draw(_CASES, sizes, dtype=n)]
    if passed:
        failure.args = (f"{failure}\nIn {' and '.join(map(str, passed))}, it is right.",)


def _code(rule: SizeRule) -> str:
    if rule.name.startswith("len("):
        return "OPS-SIZE-LIST" if rule.above else ""
    return "" if " given" in rule.words else "OPS-ARGUMENT-NUMBER"


def _facts(case: Case) -> Facts:
    facts: dict[str, Any] = dict(sizes_of(case))
    for name, value in case.values.items():
        if isinstance(value, bool | int | float | str):
            facts[name] = value
        elif isinstance(value, list):
            facts[f"len({name})"] = len(value)
        if case.signature.by_name[name].optional:
            facts[f"{name} is"] = "given" if value is not None else "not given"
    return facts


def find_rule(failing: Sequence[Facts], right: Sequence[Facts]) -> SizeRule | None:
    """Return the simplest rule that parts all cases; `None` without one, or with too few cases."""
    every = [*failing, *right]
    if min(len(failing), len(right)) < _CASES or len(every) < _ALL:
        return None
    names = [name for name in failing[0] if all(name in facts for facts in every)]
    rules = (
        rule
        for name in names
        for rule, holds in _of_one(name, [f[name] for f in failing], [f[name] for f in right])
        if all(holds(f[name]) for f in failing) and not any(holds(f[name]) for f in right)
    )
    return next(rules, None) or next(_of_two(names, failing, right), None)


def _of_one(
    name: str, failing: Sequence[Any], right: Sequence[Any]
) -> Iterator[tuple[SizeRule, Callable[[Any], bool]]]:
    """Yield the rules on one fact that enough different values could show."""
    bad, good, first, only = len(set(failing)), len(set(right)), failing[0], right[0]
    whole = all(type(value) is int for value in (*failing, *right))
    what = name if name.endswith(" is") else f"{name} is"
    small = "OPS-SIZE-SMALL" if first in (0, 1) else "OPS-SIZE-BOUNDARY"
    beside = not whole or first in (0, 1) or {first - 1, first + 1} <= set(right)
    if bad == 1 and beside and (good >= _NUMBERS or not whole):
        yield SizeRule(f"{what} {first}", name, small), lambda value: value == first
    if good == 1 and not whole and bad >= _NUMBERS:
        yield SizeRule(f"{what} not {only}", name), lambda value: value != only
    if good == 1 and only == 1 and whole and bad >= _NUMBERS:
        yield SizeRule(f"{name} > 1", name), lambda value: value > 1
    if isinstance(first, str | bool) or good < _NUMBERS:
        return
    if bad == 2:
        rule = SizeRule(f"{name} is 0 or 1", name, "OPS-SIZE-SMALL")
        yield rule, lambda value: value in (0, 1)
    if max(failing) < 0 <= min(right):
        yield SizeRule(f"{name} < 0", name), lambda value: value < 0
    if bad < _NUMBERS:
        return
    if not whole:
        rule = SizeRule(f"{name} is not exact in bfloat16", name)
        yield rule, lambda value: float(torch.tensor(value, dtype=torch.bfloat16)) != value
    for block in _BLOCKS if whole else ():
        rule = SizeRule(f"{name} is no multiple of {block}", name, "OPS-SIZE-BOUNDARY")
        yield rule, functools.partial(_is_multiple, False, block)
        rule = SizeRule(f"{name} is a multiple of {block}", name, "OPS-SIZE-BOUNDARY")
        yield rule, functools.partial(_is_multiple, True, block)
    most, least = max(right), min(right)
    if whole and most > 0:  # what fails wherever there is an element says nothing of sizes
        code, first = "OPS-SIZE-BOUNDARY" if most > 1 else "", min(failing)
        words = f"{name} > {most}" if first == most + 1 else f"{name} >= {first}, not up to {most}"
        yield SizeRule(words, name, code, most), lambda value: value > most
    if whole:
        yield SizeRule(f"{name} < {least}", name, "OPS-SIZE-BOUNDARY"), lambda value: value < least


def _is_multiple(wanted: bool, block: int, value: int) -> bool:
    return (value % block == 0) is wanted


def _of_two(
    names: Sequence[str], failing: Sequence[Facts], right: Sequence[Facts]
) -> Iterator[SizeRule]:
    for one, other in itertools.combinations(names, 2):
        sides = [[(facts[one], facts[other]) for facts in side] for side in (failing, right)]
        if any(len(set(side)) < _NUMBERS for side in sides) or any(
            type(number) is not int for side in sides for pair in side for number in pair
        ):
            continue
        bad, good = ([(a > b) - (a < b) for a, b in side] for side in sides)
        for words, held in (
            (f"{one} and {other} are equal", {0}),
            (f"{one} and {other} are not equal", {-1, 1}),
            (f"{one} > {other}", {1}),
            (f"{one} < {other}", {-1}),
        ):
            if set(bad) <= held and not held & set(good):
                yield SizeRule(words)
