"""The oracle: the reference in double precision, and the allowed error of a kernel.

The tolerance of one result element is

    u * (4 |f| + 4 sqrt(n) (|f| + s)) + 4 d

with ``u`` the unit roundoff of the result's dtype, ``d`` its smallest subnormal number, ``f`` the
reference in double precision, ``s`` the size of the terms that make up the element, and ``n`` their
number. This is the probabilistic bound for rounding errors (Higham and Mary, "A New
Approach to Probabilistic Rounding Error Analysis", SIAM J. Sci. Comput. 41, 2019): n roundings,
each relative to a partial sum of size about ``|f| + s``, add up to sqrt(n) of them and not to n.

``s`` and ``n`` are measured for each element (`sensitivity`), not guessed from shapes: a cell of
1000 points gets a wider tolerance than one of a point. Where arguments tie exactly, a jump is no
term. An element that exceeds its tolerance, as few others do, is measured again, with more probes.
Conversions to single precision that need not round are left out of that run (`double_run`). If a
reference of half numbers asks for single precision, ``u`` of the sum is that of single precision.

A kernel need not be more accurate than the reference itself. If a kernel exceeds the tolerance, the
reference is run again (`rounding`):

* in the kernel's dtype, with the arguments and with a few others that differ in their last bits;
* with every step rounded up or down at random, to single precision if the reference asks for it,
  and to half precision, except for the partial sums;
* for sums in single precision, with terms added in order and rounded to the nearest.

The kernel's error at an element may be four times the largest rounding error found in this way, or
the error that results when the error of every step is multiplied by four. For double precision, the
rounding errors are measured in single precision and scaled; numbers outside the range of single
precision are rounded to the same number of digits.

Five more kinds of results are right:

* If only the reference in the kernel's dtype is infinite or NaN, since an intermediate result is
  too large for the dtype, the kernel's result may be infinite or NaN too, or a value that the
  overflow of any step leads to (`overflow`). This does not hold if the reference asks for a wider
  dtype.
* Where the reference jumps (``floor``, ``argmax``), an element may agree with the reference run in
  the kernel's dtype, or with rounded steps (`ties`).
* An index that selects by a value may select another one that is as good (`selections`).
* Where a gradient jumps (``relu`` at 0), an element may be between the two sides of the jump.
* Where the reference gives NaN, an element may have its value without irrelevant infinite and NaN
  arguments (`masked_nonfinite`).

Integers and booleans are compared exactly.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.cases.layouts import plain
from opsmith.checks.cases.reference_call import run_reference
from opsmith.checks.numerics.double_run import WIDE, DoubleRun
from opsmith.checks.numerics.masked_nonfinite import Irrelevant
from opsmith.checks.numerics.overflow import exceeds_double, outcomes
from opsmith.checks.numerics.perturbation import (
    HALVED,
    coarse,
    jitter,
    keep_indices,
    narrowed,
    nudged,
)
from opsmith.checks.numerics.rounding import RandomRounding, Widening
from opsmith.checks.numerics.sensitivity import Evaluate, is_inexact, magnitude, probe
from opsmith.checks.numerics.ties import Ties
from opsmith.operators import Operator
from opsmith.operators.core.arguments import map_tensors, output_names, tensors_in
from opsmith.signature import Signature

_ROUNDING_SAMPLES = 12
#: Allowed error of a kernel, as a multiple of the reference's error in the same dtype.
_SLACK = 4.0
#: Number of probes for an element that exceeds its tolerance. Every case takes few probes, which
#: once in some thousand elements find ten times too few terms.
_MORE_PROBES = 24
_SCALE = {torch.float64: torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps}

Formula = Callable[..., tuple[list[Tensor], list[Tensor]]]


class RefusedError(Exception):
    """The reference does not accept these arguments; the message says why."""


@dataclass
class Expected:
    """The right results of one case.

    Attributes:
        values: the results on the CPU, floating-point ones in double precision.
        spread: for each floating-point result, the 2-norm of the terms of each element; `None` for
            other results.
        terms: for each floating-point result, the effective number of terms of each element; `None`
            for other results.
        exact: whether `values` were computed in double precision; if the reference requires another
            dtype, `values` have the precision of that dtype.
        evaluate: function that returns the results for other arguments.
        arguments: the case's own arguments, in its own dtypes.
        derivative: whether the results are gradients, which have two sides at a kink.
        undefined: for each result, a mask of the elements that may have any value; `None` if no
            element may.
        signature: the declaration of the results; `None` if none describes them.
        cuts: for each result that is a slice, its dimension, its first place and its length.
        beside_one: PyTorch's names of operators whose results the runtime rounds like 1, and the
            largest error in units.
        steady: whether integers and booleans stay as they are if the arguments move a little.
        formula: another way to compute the results, whose rounding errors count too: it returns
            them with rounding and without, given arguments, right results, and a mode of rounding.
        shared_sums: the size of what several calls add up, in units of the arguments'; else 0.
    """

    names: list[str]
    values: list[Tensor]
    spread: list[Tensor | None]
    terms: list[Tensor | None]
    exact: bool
    evaluate: Evaluate
    arguments: Mapping[str, Any]
    derivative: bool = False
    undefined: list[Tensor] | None = None
    signature: Signature | None = None
    cuts: Mapping[int, tuple[int, int, int]] = field(default_factory=dict)
    beside_one: Mapping[str, float] = field(default_factory=dict)
    steady: bool = False
    formula: Formula | None = None
    shared_sums: float = 0.0

    @cached_property
    def narrow(self) -> list[Tensor] | None:
        """Return the reference's results in the case's own dtypes; `None` if it raises."""
        try:
            return [plain(value) for value in self.evaluate(self.arguments)]
        except Exception:
            return None

    def measure_again(self, position: int, where: Tensor) -> None:
        """Measure the terms of the elements of a result that `where` marks, with more probes."""
        old, number = self.spread[position], self.terms[position]
        if not self.exact or old is None or number is None:
            return
        spread, terms = (found[position] for found in self._measured_again)
        assert spread is not None and terms is not None
        self.spread[position] = torch.where(where, spread, old)
        self.terms[position] = torch.where(where, terms, number)

    @cached_property
    def _measured_again(self) -> tuple[list[Tensor | None], list[Tensor | None]]:
        wide = _widened(self.arguments)
        return _probed(self._evaluate_wide, wide, self.values, _MORE_PROBES, seed=3)[:2]

    @cached_property
    def _evaluate_wide(self) -> DoubleRun:
        return DoubleRun(self.evaluate, _widened(self.arguments), self.arguments)

    def _finest(self, arguments: Mapping[str, Any]) -> torch.dtype | None:
        """Return the most precise floating-point dtype of the arguments, or else of the results."""
        return _finest(arguments) or _finest({"results": self.narrow or []})

    def rounding(self, position: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the allowed rounding error and the overflow of each element of one result.

        The yielded tensors cover one more sample each time. A sample evaluates the reference a few
        times, so stop as soon as the samples explain the kernel's result.

        The allowed error is `_SLACK` times the reference's error, or the error that results from
        `_SLACK` times the error of every step: these differ where terms cancel to the square of an
        error. The second tensor marks elements that are infinite or NaN although the right value is
        finite, since an intermediate result is too large for the dtype. It marks none in double
        precision, in which the right values are computed.
        """
        (largest, beyond), times = self._reached, max(self.shared_sums, 1.0)
        yield largest[position] * times, beyond[position]
        for _ in self._samples:
            yield largest[position] * times, beyond[position]

    @cached_property
    def _in_double(self) -> bool:
        """Return whether steps are in double precision; those of a mixed call may be in single."""
        double = {t.dtype in HALVED for t in tensors_in(self.arguments) if is_inexact(t)}
        pairs = zip(self.narrow or (), self.values, strict=False)
        kept = all(torch.equal(own, right) for own, right in pairs if own.dtype in HALVED)
        return True in double and (kept or False not in double)

    @cached_property
    def _reached(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return the largest errors and the overflows of the samples so far, for all results."""
        return (
            [torch.zeros(value.shape, dtype=torch.float64) for value in self.values],
            [torch.zeros(value.shape, dtype=torch.bool) for value in self.values],
        )

    @cached_property
    def _samples(self) -> Iterator[None]:
        """Take one sample of rounding after the other, for whoever asks first."""
        if not self.exact:
            return
        largest, beyond = self._reached
        generator = torch.Generator().manual_seed(1)
        is_double = self._in_double
        scale = _SCALE[torch.float64] if is_double else 1.0
        for sample in range(_ROUNDING_SAMPLES):
            own = dict(self.arguments)
            if sample:
                own = {name: jitter(value, generator) for name, value in own.items()}
            own = {name: coarse(value) for name, value in own.items()}
            steps = _SLACK if sample % 2 else 1.0
            ways = self._rough_and_fine(own, generator, steps, not sample)
            for rough, fine, slack, narrow in ways:
                for position, (one, right) in enumerate(zip(rough, fine, strict=True)):
                    if one.shape == right.shape == largest[position].shape and is_inexact(right):
                        error = magnitude(one.detach().to(right.dtype) - right.detach()) * scale
                        fits = right.detach().to(one.dtype).isfinite() & right.isfinite()
                        # A reference that upcasts does so to avoid overflow: excuse none then.
                        if not is_double and (narrow or not self.widens):
                            beyond[position] |= fits & ~one.isfinite()
                        error = slack * torch.nan_to_num(error, nan=0.0, posinf=0.0)
                        largest[position] = torch.maximum(largest[position], error)
                yield

    def _rough_and_fine(
        self, own: Mapping[str, Any], generator: torch.Generator, steps: float, in_order: bool
    ) -> Iterator[tuple[list[Tensor], list[Tensor], float, bool]]:
        """Yield (rounded, exact, slack, own_dtypes) for several models of rounding.

        The difference of `rounded` and `exact` has to be multiplied by `slack`; the error of every
        step is multiplied by `steps` already. `own_dtypes` is true for the reference itself in the
        case's dtypes. With `in_order`, one more model adds up sums sequentially.
        """
        short = {name: narrowed(value) for name, value in own.items()}
        with contextlib.suppress(Exception):
            fine = self._evaluate_wide(_widened(short))
            yield self.evaluate(short), fine, _SLACK, True
            if self.formula is not None:
                # Round its steps, too: of terms that cancel, the plain run may lose nothing.
                mode = RandomRounding(self._finest(short) or torch.float64, generator)
                yield *self.formula(short, fine, mode), _SLACK, False
        wide = _widened(own)
        # Double precision itself amplifies to noise what single precision only saturates.
        runs = self._rounded_runs(short) + [(self._evaluate_wide, torch.float64)] * self._in_double
        for evaluate, dtype in runs:
            with contextlib.suppress(Exception):
                fine, any_size = evaluate(wide), self._in_double
                for way in range(3 if in_order else 1):
                    with RandomRounding(
                        dtype,
                        generator,
                        steps,
                        any_size=any_size,
                        in_order=way > 0,
                        to_nearest=way > 1,
                        beside_one=self.beside_one,
                        may_cancel=True,
                    ):
                        rough = evaluate(wide)
                    yield rough, fine, _SLACK / steps / _SCALE.get(dtype, 1.0), False
        for half in self._halves:
            # A kernel may round each step to half precision, but the partial sums of no sum.
            with contextlib.suppress(Exception):
                fine = self._evaluate_wide(wide)
                with RandomRounding(half, generator, steps, partial_sums=False):
                    rough = self._evaluate_wide(wide)
                own_dtypes = [one.dtype for one in self.narrow or fine]
                rough = [
                    one if dtype == half else right
                    for one, right, dtype in zip(rough, fine, own_dtypes, strict=True)
                ]
                yield rough, fine, _SLACK / steps, False

    def _rounded_runs(self, arguments: Mapping[str, Any]) -> list[tuple[Evaluate, torch.dtype]]:
        """Return runs in double precision, each with the dtype to which its steps are rounded.

        If a reference of half numbers asks for single precision, one run rounds every step to it,
        and another one to half precision, except the steps that the reference asks for.
        """
        dtype, run = self._finest(arguments), self._evaluate_wide
        if dtype is None:
            return []
        if not run.converts or dtype == torch.float32:
            return [(run, dtype)]
        return [(run, torch.float32), (run.as_written, dtype)]

    @cached_property
    def ties(self) -> list[Ties]:
        """Return the results with other roundings of the steps; none if no step is rounded."""
        if not self.exact:
            return []
        wide = _widened(self.arguments)
        runs = self._rounded_runs(self.arguments)
        return [Ties(partial(evaluate, wide), dtype, _SLACK) for evaluate, dtype in runs]

    @cached_property
    def widens(self) -> bool:
        """Return whether the reference itself upcasts to a more precise dtype than the case has."""
        for dtype in {t.dtype.to_real() for t in tensors_in(self.arguments) if is_inexact(t)}:
            with contextlib.suppress(Exception), Widening(dtype) as steps:
                self.evaluate(self.arguments)
            if steps.found:
                return True
        return False

    @cached_property
    def _halves(self) -> set[torch.dtype]:
        """Return the half precision dtypes of the results whose sums the reference adds wider."""
        return {one.dtype for one in self.narrow or () if self.adds_wider(one.dtype)}

    def adds_wider(self, dtype: torch.dtype) -> bool:
        """Return whether sums in half precision are wrong, since the reference asks for single."""
        half = dtype in (torch.float16, torch.bfloat16)
        return half and self.exact and not self.shared_sums and self._evaluate_wide.converts

    @cached_property
    def overflows(self) -> list[list[Tensor]]:
        """Return the results if some of the steps are too large for the case's dtypes."""
        wide, tensors = _widened(self.arguments), tensors_in(self.arguments)
        found: list[list[Tensor]] = []
        for dtype in dict.fromkeys(t.dtype.to_real() for t in tensors if is_inexact(t)):
            # The last run computes in half precision only what the reference does.
            evaluate = self._rounded_runs(self.arguments)[-1][0]
            with contextlib.suppress(Exception):  # some operators raise for infinity
                for results in outcomes(partial(evaluate, wide), dtype):
                    found.append([plain(value) for value in results])
        return found

    @cached_property
    def unknown(self) -> bool:
        """Return whether a NaN of the oracle may result from an overflow of double precision."""
        wide = _widened(self.arguments)
        if not all(bool(tensor.isfinite().all()) for tensor in tensors_in(wide)):
            return False
        with contextlib.suppress(Exception):
            return exceeds_double(lambda: self._evaluate_wide(wide))
        return False

    @cached_property
    def nearby(self) -> list[tuple[Tensor, Tensor]]:
        """Return each real element's least and largest value for slightly moved arguments."""
        ends = [(value, value) for value in self.values]
        double = all(t.dtype in HALVED for t in tensors_in(self.arguments) if is_inexact(t))
        wide = _widened(self.arguments)
        for moved in nudged(wide, fine=double and not self._evaluate_wide.narrows):
            try:
                found = self._evaluate_wide(moved)
            except Exception:
                continue
            for position, value in enumerate(found):
                low, high = ends[position]
                if value.shape == low.shape and value.is_floating_point():
                    value = value.detach().to(low.dtype)
                    ends[position] = torch.minimum(low, value), torch.maximum(high, value)
        return ends

    @cached_property
    def irrelevant(self) -> Irrelevant[Expected]:
        """Return right results without irrelevant infinite and NaN elements of the arguments."""
        return Irrelevant(self.arguments, lambda own: self._evaluate_wide(_widened(own)), self._at)

    def _at(self, own: Mapping[str, Any]) -> Expected | None:
        """Return the oracle for other arguments; `None` if the reference rejects them."""
        try:
            return measure(self.evaluate, _widened(own), own)
        except Exception:
            return None


def widen(value: Any) -> Any:
    """Convert tensors in `value` to contiguous CPU tensors, floating-point ones to float64."""

    def wide(tensor: Tensor) -> Tensor:
        own = plain(tensor)
        return own.to(WIDE.get(own.dtype, own.dtype))

    return map_tensors(value, wide)


def _widened(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: widen(value) for name, value in arguments.items()}


def narrow(value: Any) -> Any:
    """Convert tensors in `value` to contiguous CPU tensors of their own dtypes."""
    return map_tensors(value, plain)


def expected_of(
    operator: Operator, arguments: Mapping[str, Any], known: Mapping[str, Any] | None = None
) -> Expected:
    """Compute the right results for `arguments`.

    Compute on contiguous copies: the right results do not depend on the memory layout, but
    PyTorch's own operators have defects that do.

    Args:
        known: what the oracle cache has of `Expected`, if it was computed before.
    """
    own = {name: narrow(value) for name, value in arguments.items()}
    names: list[str] = []

    def evaluate(given: Mapping[str, Any]) -> list[Tensor]:
        given = keep_indices(operator.signature, own, given)
        returned, flat = run_reference(operator, given)
        names[:] = output_names(operator.signature, returned, arguments)
        return flat

    if known is not None:
        return Expected(**known, evaluate=evaluate, arguments=own, signature=operator.signature)
    wide = _widened(arguments)
    found = measure(evaluate, wide, own)
    if len(names) != len(found.values):
        names = [f"result {position}" for position in range(len(found.values))]
    found.names = names
    found.signature = operator.signature
    return found


def require_accepted(operator: Operator, arguments: Mapping[str, Any]) -> None:
    """Require that the reference accepts some arguments."""
    own = {name: narrow(value) for name, value in arguments.items()}
    try:
        run_reference(operator, own)
    except Exception as error:
        try:
            run_reference(operator, _widened(own))
        except Exception:
            raise RefusedError(f"{type(error).__name__}: {error}") from error


def measure(evaluate: Evaluate, wide: Mapping[str, Any], own: Mapping[str, Any]) -> Expected:
    """Evaluate in double precision, and measure the sensitivity of each element.

    Args:
        evaluate: function that returns the right results for arguments by name.
        wide: the arguments in double precision.
        own: the arguments in the kernel's dtypes.
    """
    exact = True
    evaluate_wide = DoubleRun(evaluate, wide, own)
    try:
        values = evaluate_wide(wide)
    except Exception as error:
        # A reference that uses a fixed dtype rejects wider arguments.
        try:
            values = evaluate(own)
        except Exception:
            raise RefusedError(f"{type(error).__name__}: {error}") from error
        exact = False
    values = [plain(value) for value in values]
    if exact:
        spread, terms, steady = _probed(evaluate_wide, wide, values)
    else:
        steady = False
        floats = _count(wide)
        spread = [magnitude(value) if is_inexact(value) else None for value in values]
        terms = [
            None if size is None else torch.full_like(size, max(1.0, floats / max(size.numel(), 1)))
            for size in spread
        ]
    return Expected([""] * len(values), values, spread, terms, exact, evaluate, own, steady=steady)


def _probed(
    run: DoubleRun, wide: Mapping[str, Any], values: list[Tensor], probes: int = 6, seed: int = 0
) -> tuple[list[Tensor | None], list[Tensor | None], bool]:
    """Measure the terms of results, see `probe`, also through conversions that narrow."""
    evaluate, smooth = run.smooth(values)
    if evaluate is run:
        return probe(run, wide, values, _count(wide), probes, seed, not run.chooses)
    spread, terms, _ = probe(evaluate, wide, smooth, _count(wide), probes, seed)
    for position, value in enumerate(values):
        if not is_inexact(value):
            spread[position] = terms[position] = None
    return spread, terms, False


def _count(arguments: Mapping[str, Any]) -> int:
    return sum(tensor.numel() for tensor in tensors_in(arguments) if is_inexact(tensor))


def _finest(arguments: Mapping[str, Any]) -> torch.dtype | None:
    """Return the most precise floating-point dtype of some arguments, as a real dtype."""
    dtypes = {t.dtype for t in tensors_in(arguments) if is_inexact(t)}
    finest = min(dtypes, key=lambda dtype: torch.finfo(dtype).eps, default=None)
    return None if finest is None else finest.to_real()
