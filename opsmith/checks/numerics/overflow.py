"""Possible results of a formula when some of its steps overflow.

If a reference overflows in a kernel's dtype and gives NaN, an equivalent formula with another order
of steps may give a number: in ``(x - mean) / sqrt(var)``, perhaps only the variance is too large,
and the quotient is zero. The formula is therefore run in double precision, and infinity replaces
the results of some of the steps that are too large for the kernel's dtype. The overflow
explains the values that these runs give, and NaN and infinity; any other value is wrong.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.numerics.rounding import StepByStep, is_wide

#: Operators that sum products or terms: partial sums overflow if the sum of magnitudes does.
_LINEAR = {"sum", "mean", "cumsum", "mm", "bmm", "mv", "dot", "addmm"}
#: Operators without a pole: their results are infinite only if they are too large.
_GROWING = _LINEAR | {"exp", "exp2", "expm1", "sinh", "cosh", "add", "sub", "mul", "square", "prod"}
#: Operators whose results for nonzero arguments are zero only if they are too small.
_SHRINKING = {"exp", "exp2", "mul", "square", "pow", "div"}
#: Up to the first number of steps, every combination is tried. With more steps, the second is the
#: number of steps that are tried alone, and of random combinations.
_ALL, _SOME = 4, 16
#: Number of further random combinations where sums may overflow with either sign.
_EITHER = 48


def outcomes(evaluate: Callable[[], list[Tensor]], dtype: torch.dtype) -> Iterator[list[Tensor]]:
    """Yield the results of a formula for different combinations of overflowing steps.

    Args:
        evaluate: function that runs the formula in double precision.
        dtype: the dtype in which steps overflow.
    """
    first = Overflows(dtype, ())
    with first:
        evaluate()
    for number, chosen in enumerate(_combinations(sorted(first.too_large))):
        with Overflows(dtype, chosen, number):
            found = evaluate()
        yield found


def exceeds_double(evaluate: Callable[[], Any]) -> bool:
    """Return whether a step of a formula overflows or underflows in double precision itself."""
    steps = _Exceeds()
    with steps:
        evaluate()
    return steps.found


class _Exceeds(StepByStep):
    """Detect a step that turns finite numbers into infinity, or nonzero numbers into zero."""

    found = False

    def took(self, func: Any, args: Any, kwargs: Mapping[str, Any], returned: Any) -> None:
        name = _name(func)
        if not is_wide(returned) or name not in _GROWING | _SHRINKING:
            return
        given = [torch.as_tensor(one) for one in args if isinstance(one, Tensor | float | int)]
        if not all(bool(one.isfinite().all()) for one in given):
            return
        if name in _GROWING:
            self.found |= bool(returned.isinf().any())
        if name in _SHRINKING:
            vanished = returned == 0
            for one in given:
                vanished = vanished & (one != 0)
            self.found |= bool(vanished.any())


def _combinations(steps: list[int]) -> Iterator[tuple[int, ...]]:
    at_random = _EITHER if steps and steps[0] < 0 else 0
    if len(steps) <= _ALL:
        for count in range(1, len(steps) + 1):
            yield from itertools.combinations(steps, count)
    else:
        yield tuple(steps)
        yield from ((step,) for step in steps[:_SOME])
        at_random += _SOME
    rng = random.Random(0)
    for _ in range(at_random):
        yield tuple(step for step in steps if rng.random() < 0.5)


class Overflows(StepByStep):
    """Make results that are too large for a dtype infinite at some steps.

    Args:
        dtype: a floating-point dtype.
        chosen: numbers of the steps. A negative number makes random elements of a sum infinite
            with the other sign.
        seed: seed for these random elements.

    Attributes:
        too_large: the numbers of the steps with results that are too large.
    """

    def __init__(self, dtype: torch.dtype, chosen: Collection[int], seed: int = 0) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)
        self.too_large: set[int] = set()
        self._largest = torch.finfo(dtype).max
        self._chosen = chosen
        self._step = 0

    def took(self, func: Any, args: Any, kwargs: Mapping[str, Any], returned: Any) -> None:
        """Let partial sums overflow."""
        self._step += 1
        if _name(func) not in _LINEAR or not is_wide(returned) or returned.is_complex():
            return
        sizes = [one.abs() if is_wide(one) else one for one in args]
        # The mean divides by the number of terms.
        count = args[0].numel() / max(returned.numel(), 1) if _name(func) == "mean" else 1.0
        size = func(*sizes, **kwargs) * count
        # A partial sum of the other sign may be as large as this, and the sum then stays infinite.
        self._overflow(returned, (size - returned.abs() * count) / 2, -self._step)
        self._overflow(returned, size, self._step)

    def gave(self, tensor: Tensor) -> None:
        """Let a result overflow."""
        if not tensor.is_complex():
            self._overflow(tensor, tensor, self._step)

    def _overflow(self, tensor: Tensor, size: Tensor, step: int) -> None:
        beyond = tensor.isfinite() & (size.abs() > self._largest)
        if not bool(beyond.any()):
            return
        self.too_large.add(step)
        if step not in self._chosen:
            return
        infinite = torch.copysign(torch.full_like(tensor, torch.inf), tensor)
        if step < 0:
            infinite = -infinite
            beyond &= torch.rand(tensor.shape, generator=self._generator) < 0.5
        tensor.copy_(torch.where(beyond, infinite, tensor))


def _name(func: Any) -> str:
    """Return the name of an operator of PyTorch, or of the primitive of the same name."""
    return str(func.overloadpacket).rpartition(".")[2]
