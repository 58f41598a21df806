"""Compare a kernel's results with the right ones."""

from __future__ import annotations

import cmath
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.cases.case import show_shape
from opsmith.checks.cases.layouts import bits, plain
from opsmith.checks.numerics.oracle import Expected, measure, widen
from opsmith.checks.numerics.selections import Claim, UnfitValuesError, claims_of, unsorted
from opsmith.checks.numerics.sensitivity import Evaluate
from opsmith.checks.numerics.tolerances import tolerance
from opsmith.operators.core.arguments import dtype_name, is_float8

#: Largest effective number of terms for which an element counts as a single term, not as a sum.
_ALONE = 1.5
#: Tolerance, in roundings, for values that an overflow leads to: no tolerance is measured for them.
_LOOSE = 32
#: Largest share of the elements whose measured number of terms may be far too low.
_RARE = 1 / 256
#: Least relative difference between the derivatives at the two sides of a kink.
_JUMP = 1e-3
#: What a message says of a sum in half precision.
_NARROW_SUM = "; a sum is accumulated in {}, and the reference asks for float32"


@dataclass(frozen=True)
class Comparison:
    """The outcome of comparing one call's results.

    Attributes:
        error: the largest error, in units of the tolerance; at most 1 if all results are right.
        problem: description of the problem, or `None`.
        elements: number of elements that were compared.
    """

    error: float
    problem: str | None = None
    code: str = ""
    elements: int = 0


def compare(actual: Sequence[Tensor], truth: Expected) -> Comparison:
    """Compare every result of a kernel, on any device, with the truth."""
    if len(actual) != len(truth.values):
        problem = f"gave {len(actual)} tensors, expected {len(truth.values)}"
        return Comparison(float("inf"), problem, "OPS-RESULT-COUNT")
    truth = _of_the_same_sizes(truth, actual)
    claims = claims_of(truth)
    for position in claims:
        problem = _misplaced(actual[position], truth, position, claims[position])
        if problem:
            return Comparison(float("inf"), problem, "OPS-RESULT-DECLARED")
    truth = _of_the_same_choices(truth, actual, claims)
    worst, elements = Comparison(0.0), 0
    for position, name in enumerate(truth.names):
        value = plain(actual[position])
        expected = truth.values[position]
        if value.shape != expected.shape:
            return Comparison(
                float("inf"),
                f"{name} has shape {show_shape(value.shape)}, expected "
                f"{show_shape(expected.shape)}",
                "OPS-RESULT-SHAPE",
            )
        if value.numel() == 0:
            continue
        claim = claims.get(position)
        ratio = _ratios(value, expected, _allowed(truth, position, value))
        elements += ratio.numel()
        if truth.undefined is not None:
            ratio = torch.where(truth.undefined[position], 0.0, ratio)
            elements -= int(truth.undefined[position].sum())
        if claim is not None and claim.selection is not None and bool((ratio > 1).any()):
            try:
                ratio = claim.selection.ratio(value, expected)
            except UnfitValuesError as error:
                return Comparison(float("inf"), f"{name}: {error}", "OPS-RESULT-DECLARED")
            ratio = _overflowing(ratio, value, truth, position)
        elif bool((ratio > 1).any()):
            ratio = _more_precise(ratio, value, truth, position)
            ratio = _forgive(ratio, value, truth, position)
        found = float(ratio.max())
        if found > 1 and worst.problem is None:
            problem = _describe(name, value, truth, position, ratio)
            if claim is not None and claim.selection is not None:
                twice = claim.selection.repeats(value, expected)
                problem += "; an index stands twice in its row" if twice else ""
            code = _kind(value, expected, ratio)
            if _added_narrow(ratio, value, truth, position):
                problem += _NARROW_SUM.format(dtype_name(value.dtype))
                code = "OPS-VALUE-ACCUMULATION"
            worst = Comparison(found, problem, code)
        elif found > worst.error and worst.problem is None:
            worst = Comparison(found)
    return replace(worst, elements=elements)


def _of_the_same_sizes(truth: Expected, actual: Sequence[Tensor]) -> Expected:
    """Return the truth, with the sizes of `actual` if rounding decides the sizes.

    If an element is close to a threshold, the number of elements that pass it may differ between
    float64 and the case's own dtypes.
    """
    shapes = [value.shape for value in actual]
    if shapes == [value.shape for value in truth.values]:
        return truth
    narrow = [truth.narrow] if truth.narrow is not None else []
    for found in itertools.chain(narrow, *truth.ties):
        if shapes == [value.shape for value in found]:
            unknown: list[Tensor | None] = [None] * len(found)
            return replace(truth, values=found, spread=unknown, terms=unknown, undefined=None)
    return truth


def _of_the_same_choices(
    truth: Expected, actual: Sequence[Tensor], claims: Mapping[int, Claim]
) -> Expected:
    """Return the truth for the choices of `actual`, if these are as good as the reference's.

    Further results may depend on which of several equal candidates is chosen. They have to belong
    to the indices beside them, however rounding decides.
    """
    for position, claim in claims.items():
        value, right = plain(actual[position]), truth.values[position]
        if claim.selection is None or len(actual) == 1 or not truth.ties:
            continue
        if value.shape != right.shape or not value.numel():
            continue
        try:
            if bool((claim.selection.ratio(value, right) > 1).any()):
                continue
        except UnfitValuesError:
            continue
        if truth.steady and torch.equal(right.long(), value.long()):
            # The measured errors also hold for these choices, which differ in roundings at most.
            return replace(truth, evaluate=_choosing(truth, position, value))
        choices = _choices(truth, position, value)
        if choices is not None:
            evaluate = _in_mode(truth.evaluate, choices)
            wide = {name: widen(value) for name, value in truth.arguments.items()}
            # Measure again: near a tie, every result depends on every candidate.
            found = measure(evaluate, wide, truth.arguments)
            return replace(
                truth,
                values=found.values,
                spread=found.spread,
                terms=found.terms,
                evaluate=evaluate,
            )
    return truth


_Mode = Callable[[], AbstractContextManager[Any]]


def _choices(truth: Expected, position: int, value: Tensor) -> _Mode | None:
    """Return a mode in which the reference gives `value` as one of its results; `None` without."""
    for results, choices in truth.ties[0].making(value) if truth.ties else ():
        same = torch.equal(results[position].long(), value.long())
        if same and [one.shape for one in results] == [one.shape for one in truth.values]:
            return choices
    return None


def _in_mode(evaluate: Evaluate, mode: _Mode) -> Evaluate:
    def evaluated(arguments: Mapping[str, Any]) -> list[Tensor]:
        with mode():
            return evaluate(arguments)

    return evaluated


def _choosing(truth: Expected, position: int, value: Tensor) -> Evaluate:
    """Return the evaluation with the choices in `value`, which are looked for when it is called."""

    @functools.cache
    def evaluate() -> Evaluate:
        choices = _choices(truth, position, value)
        return truth.evaluate if choices is None else _in_mode(truth.evaluate, choices)

    return lambda arguments: evaluate()(arguments)


def _misplaced(value: Tensor, truth: Expected, position: int, claim: Claim) -> str:
    """Describe why a result is not in its declared order; empty if it is."""
    name = truth.names[position]
    if claim.order is None or value.shape != truth.values[position].shape:
        return ""
    problem = unsorted(truth.values[position], claim.order, claim.ends)
    if problem:
        return f"the reference itself breaks the declaration: {name}{problem}"
    problem = unsorted(plain(value), claim.order, claim.ends)
    return f"{name}{problem}" if problem else ""


def _allowed(truth: Expected, position: int, value: Tensor) -> Tensor:
    if is_float8(value.dtype):
        # A value between two float8 numbers may be rounded to either: allow their distance.
        info = torch.finfo(value.dtype)
        size = torch.nan_to_num(truth.values[position].to(torch.float64).abs(), posinf=0.0)
        return info.eps * size.clamp_min(info.smallest_normal)
    if truth.spread[position] is None or not (value.is_floating_point() or value.is_complex()):
        return torch.zeros(value.shape, dtype=torch.float64)
    wide_sums = truth.adds_wider(value.dtype)
    return tolerance(truth, position, value.dtype, wide_sums=wide_sums)


def _added_narrow(ratio: Tensor, value: Tensor, truth: Expected, position: int) -> bool:
    """Return whether the errors are those of a sum whose partial sums are in half precision."""
    if not truth.adds_wider(value.dtype):
        return False
    wrong = ratio > 1
    truth.measure_again(position, wrong)
    terms = truth.terms[position]
    loose = _ratios(value, truth.values[position], tolerance(truth, position, value.dtype))
    return terms is not None and bool(((loose <= 1) & (terms > _ALONE))[wrong].any())


def _ratios(value: Tensor, expected: Tensor, allowed: Tensor) -> Tensor:
    """Return each element's error in units of the allowed one; infinite if no error is allowed."""
    if not (value.is_floating_point() or value.is_complex()):
        if not (expected.is_floating_point() or expected.is_complex()):
            return torch.where(value == expected, 0.0, torch.inf).to(torch.float64)
        allowed = torch.zeros(value.shape, dtype=torch.float64)
    wide, right = _widened(value), _widened(expected)
    same = (wide == right) | (torch.isnan(wide) & torch.isnan(right))
    same |= _overflowed(value, right, allowed)
    if value.is_complex():
        # Which part becomes infinite and which NaN depends on the formula: a product by the rules
        # of C has other ones than PyTorch's. So a number that is not finite equals another one.
        parts = torch.view_as_real(right.to(torch.complex128)).abs().amax(-1)
        same |= ~wide.isfinite() & ~(parts + allowed < torch.finfo(value.dtype).max)
    error = (wide - right).abs()
    ratio = torch.where(allowed > 0, error / allowed.clamp_min(1e-320), torch.inf)
    ratio = torch.where(torch.isnan(ratio), torch.inf, ratio)
    return torch.where(same, 0.0, ratio)


def _overflowed(value: Tensor, right: Tensor, allowed: Tensor) -> Tensor:
    """Find elements that are infinite because the right value overflows in the kernel's dtype."""
    if not value.is_floating_point():
        return torch.zeros(value.shape, dtype=torch.bool)
    largest = torch.finfo(value.dtype).max
    beyond = right.abs() + allowed >= largest
    return (
        torch.isinf(value.to(torch.float64))
        & beyond
        & (torch.sign(value.to(torch.float64)) == torch.sign(right))
    )


def _more_precise(ratio: Tensor, value: Tensor, truth: Expected, position: int) -> Tensor:
    """Return the ratios after measuring the terms of rare elements above 1 with more probes.

    A measure that is far off is rare. Where more elements exceed their tolerance, errors are large.
    """
    if int((ratio > 1).sum()) > _RARE * ratio.numel():
        return ratio
    truth.measure_again(position, ratio > 1)
    again = _ratios(value, truth.values[position], _allowed(truth, position, value))
    return torch.where(ratio > 1, again, ratio)


def _forgive(ratio: Tensor, value: Tensor, truth: Expected, position: int) -> Tensor:
    """Forgive errors that the reference itself makes in the kernel's dtype."""
    expected, allowed = truth.values[position], _allowed(truth, position, value)
    narrow = None if truth.narrow is None else truth.narrow[position]
    if narrow is not None and narrow.shape == value.shape:
        beside = _ratios(value, narrow, allowed)
        ratio = torch.where((ratio > 1) & (beside <= 1), beside, ratio)
        if narrow.is_floating_point() and bool((ratio > 1).any()):
            # A number that an overflow led the reference to: what is right there, it does not say.
            lost = _widened(narrow).isfinite() & (_ratios(narrow, expected, allowed) > 1)
            lost &= _explained_by_overflow(narrow, truth, position, allowed)
            ratio = torch.where(lost, 0.0, ratio)
    if value.is_floating_point() or value.is_complex():
        ratio = torch.where(_terms_overflow(value, truth, position), 0.0, ratio)
        for rounding, beyond in truth.rounding(position):
            reached = torch.maximum(allowed, rounding)
            ratio = torch.minimum(ratio, _ratios(value, expected, reached))
            if bool((beyond & (ratio > 1)).any()):
                explained = _explained_by_overflow(value, truth, position, reached)
                ratio = torch.where(beyond & explained, 0.0, ratio)
            if not bool((ratio > 1).any()):
                break
        # Rounding also decides between NaN and infinity: infinity times a weight of nearly 0 is
        # NaN if the weight is rounded to 0.
        special = ~_widened(expected).isfinite() & ~_widened(value).isfinite()
        ratio = _rounded(ratio, value, truth, position, special)
    else:
        everywhere = torch.ones(value.shape, dtype=torch.bool)
        ratio = _rounded(ratio, value, truth, position, everywhere)
        ratio = _overflowing(ratio, value, truth, position)
    wide = _widened(expected)
    nowhere = wide.isnan() | ~(wide.isfinite() | _widened(value).isfinite())
    if bool((nowhere & (ratio > 1)).any()) and truth.unknown:
        ratio = torch.where(nowhere, 0.0, ratio)
    if truth.derivative and value.is_floating_point() and bool((ratio > 1).any()):
        ratio = torch.where(_between_sides(value, truth, position, reached), 0.0, ratio)
    return _ignoring(ratio, value, truth, position)


def _rounded(ratio: Tensor, value: Tensor, truth: Expected, position: int, where: Tensor) -> Tensor:
    """Accept, where a mask allows it, the reference's values with other roundings of its steps."""
    if not bool((where & (ratio > 1)).any()):
        return ratio
    runs = (itertools.chain(ties, ties.choosing(value)) for ties in truth.ties)
    for results in itertools.chain.from_iterable(runs):
        found = results[position]
        if found.shape == value.shape:
            same = (value == found) | (value.isnan() & found.isnan())
            ratio = torch.where(where & same, 0.0, ratio)
        if not bool((where & (ratio > 1)).any()):
            break
    return ratio


def _overflowing(ratio: Tensor, value: Tensor, truth: Expected, position: int) -> Tensor:
    """Accept integers that result from an overflow: no infinite distance is the shortest."""
    if not bool((ratio > 1).any()) or truth.widens:
        return ratio
    for results in truth.overflows:
        if results[position].shape == value.shape:
            ratio = torch.where(value == results[position], 0.0, ratio)
    return ratio


def _ignoring(ratio: Tensor, value: Tensor, truth: Expected, position: int) -> Tensor:
    """Accept, in place of NaN, the right value without NaN and infinity in irrelevant arguments."""
    asked = truth.values[position].isnan() & (ratio > 1)
    if not bool(asked.any()):
        return ratio
    for finite, independent in truth.irrelevant.without(position, asked):
        if finite.values[position].shape != value.shape:
            continue
        other = _ratios(value, finite.values[position], _allowed(finite, position, value))
        if bool((asked & independent & (other > 1)).any()):
            other = _forgive(other, value, finite, position)
        ratio = torch.where(asked & independent, torch.minimum(ratio, other), ratio)
        asked &= ratio > 1
        if not bool(asked.any()):
            break
    return ratio


def _terms_overflow(value: Tensor, truth: Expected, position: int) -> Tensor:
    """Find infinite and NaN elements whose partial sums are too large for the dtype.

    Only terms that cancel lead to NaN or to infinity of the other sign. A single term has none that
    cancel: if the reference gives the right infinity for it, so must the kernel.
    """
    spread, terms = truth.spread[position], truth.terms[position]
    if spread is None or terms is None:
        return torch.zeros(value.shape, dtype=torch.bool)
    right = truth.values[position]
    largest = right.abs() + spread * torch.sqrt(terms)
    overflows = right.isfinite() & (2 * largest >= torch.finfo(value.dtype).max)
    overflows &= ~_widened(value).isfinite()
    narrow = truth.narrow
    if value.is_complex() or narrow is None or narrow[position].shape != value.shape:
        return overflows
    reached = _widened(narrow[position])
    infinite = reached.isinf() & (reached.sign() == right.sign())
    alone = overflows & (terms < _ALONE) & infinite & (_widened(value) != reached)
    if bool(alone.any()):
        # Few probes take a sum for a single term once in a while.
        truth.measure_again(position, alone)
        again = truth.terms[position]
        alone &= again is not None and again < _ALONE
    return overflows & ~alone


def _explained_by_overflow(
    value: Tensor, truth: Expected, position: int, allowed: Tensor
) -> Tensor:
    """Find values that an overflow of an intermediate result leads to.

    Such a value may be finite: a quotient by infinity is zero.
    """
    explained = ~_widened(value).isfinite()
    if value.is_complex():  # complex quotients and magnitudes overflow in many ways
        return torch.ones_like(explained)
    loose = _LOOSE * torch.finfo(value.dtype).eps
    for results in truth.overflows:
        other = results[position]
        if other.shape == value.shape:
            wide = _widened(other)
            near = (_widened(value) - wide).abs() <= allowed + loose * wide.abs()
            explained |= wide.isfinite() & near
    return explained


def _widened(value: Tensor) -> Tensor:
    return value.to(torch.complex128 if value.is_complex() else torch.float64)


def _between_sides(value: Tensor, truth: Expected, position: int, allowed: Tensor) -> Tensor:
    """Find elements where a derivative jumps and the value is between the two sides of the jump."""
    low, high = truth.nearby[position]
    jumps = high - low > _JUMP * torch.maximum(low.abs(), high.abs())
    wide = value.to(torch.float64)
    return jumps & (wide >= low - allowed) & (wide <= high + allowed)


def _describe(name: str, value: Tensor, truth: Expected, position: int, ratio: Tensor) -> str:
    wrong = ratio > 1
    worst = int(ratio.flatten().argmax())
    right = truth.values[position].flatten()[worst].item()
    got, expected = _apart(value.flatten()[worst].item(), right)
    text = f"{_place(name, value, worst)} is {got}, expected {expected}"
    allowed = _allowed(truth, position, value).flatten()[worst].item()
    error = abs(value.flatten()[worst].item() - right)
    if cmath.isfinite(error):  # what was granted beyond the formula counts too
        allowed = max(allowed, error / ratio.flatten()[worst].item())
    if allowed and cmath.isfinite(right):
        text += f" ± {allowed:.2g}"
    text += f" ({dtype_name(value.dtype)})"
    if value.numel() > 1:
        text += f"; {int(wrong.sum())} of {value.numel()} elements are wrong"
    return text


def _kind(value: Tensor, expected: Tensor, ratio: Tensor) -> str:
    """Return the failure code of a wrong value, judged by the element with the largest error."""
    worst = ratio.flatten().argmax()
    both = [one.flatten()[worst].item() for one in (value, expected)]
    got, right = map(cmath.isfinite, both)
    if got == right:
        got, right = (not cmath.isnan(one) for one in both)
    if got == right:
        return "OPS-VALUE-WRONG"
    return "OPS-VALUE-NAN-LOST" if got else "OPS-VALUE-NAN"


def _place(name: str, tensor: Tensor, flat: int) -> str:
    """Return the name of one element: ``the result[0, 3]``."""
    index = [int(i) for i in torch.unravel_index(torch.tensor(flat), tensor.shape)]
    return f"{name}{index if index else ''}"


def _apart(first: Any, second: Any) -> tuple[str, str]:
    """Format two numbers with enough digits to tell them apart, at least six."""
    for digits in range(6, 18):
        shown = _number(first, digits), _number(second, digits)
        if shown[0] != shown[1]:
            break
    return shown


def _number(value: bool | int | float | complex, digits: int) -> str:
    return f"{value:.{digits}g}" if isinstance(value, float | complex) else str(value)


def same_bits(first: Sequence[Tensor], second: Sequence[Tensor]) -> bool:
    """Return whether two lists of tensors are equal in shape, dtype and every bit."""
    if len(first) != len(second):
        return False
    return all(
        a.shape == b.shape and a.dtype == b.dtype and torch.equal(bits(a), bits(b))
        for a, b in zip(first, second, strict=True)
    )


def difference(first: Sequence[Tensor], second: Sequence[Tensor], names: Sequence[str]) -> str:
    """Describe the largest difference between the results of two calls; "" for equal bits."""
    if len(first) != len(second):
        return f"{len(first)} and {len(second)} tensors"
    worst, text = -1.0, ""
    for name, a, b in zip(names, first, second, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return (
                f"{name} is {dtype_name(a.dtype)} {show_shape(a.shape)} and "
                f"{dtype_name(b.dtype)} {show_shape(b.shape)}"
            )
        if same_bits([a], [b]):
            continue
        one, other = plain(a).flatten(), plain(b).flatten()
        differs = (bits(one) != bits(other)).view(one.numel(), -1).any(1)
        wide = torch.complex128 if one.is_complex() else torch.float64
        apart = torch.nan_to_num((one.to(wide) - other.to(wide)).abs(), nan=torch.inf)
        place = int(torch.where(differs, apart, -1.0).argmax())
        if float(apart[place]) <= worst:
            continue
        worst = float(apart[place])
        shown = _apart(one[place].item(), other[place].item())
        text = (
            f"{_place(name, a, place)} is {shown[0]} and {shown[1]}, {worst:.2g} apart "
            f"({dtype_name(a.dtype)}); {int(differs.sum())} of {a.numel()} elements differ"
        )
    return text
