"""What overflows can make of a formula: its operators, each with or without the overflow it has.

Where a reference overflows in a kernel's dtype and gives NaN, a right formula of another order may
give a number: of ``(x - mean) / sqrt(var)`` nothing but the variance may be too large, and the
quotient is zero. So the formula is run in double precision, and at some of the steps that are too
large for the kernel's dtype infinity takes the place of what the step gave. What comes out, and NaN
and infinity, is what an overflow explains; another number is wrong.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.numerics.rounding import StepByStep, is_wide

#: What adds up products or terms: partial sums overflow where the terms' magnitudes do.
_LINEAR = {"sum", "mean", "cumsum", "mm", "bmm", "mv", "dot", "addmm"}
#: What is infinite only where it is too large, and has no pole.
_GROWING = _LINEAR | {"exp", "exp2", "expm1", "sinh", "cosh", "add", "sub", "mul", "square", "prod"}
#: What is zero only where it is too small, if what it is given is not zero.
_SHRINKING = {"exp", "exp2", "mul", "square", "pow", "div"}
#: Up to how many steps every combination is tried, and how many alone and at random otherwise.
_ALL, _SOME = 4, 16
#: How many more are tried at random where sums may overflow with either sign, element by element.
_EITHER = 48


def outcomes(evaluate: Callable[[], list[Tensor]], dtype: torch.dtype) -> Iterator[list[Tensor]]:
    """What a formula gives where some of its steps overflow, in one combination after another.

    Args:
        evaluate: runs the formula in double precision.
        dtype: what is too small for the steps.
    """
    first = Overflows(dtype, ())
    with first:
        evaluate()
    for number, chosen in enumerate(_combinations(sorted(first.too_large))):
        with Overflows(dtype, chosen, number):
            found = evaluate()
        yield found


def exceeds_double(evaluate: Callable[[], Any]) -> bool:
    """Whether some step of a formula is too large or too small for double precision itself."""
    with _Exceeds() as steps:
        evaluate()
    return steps.found


class _Exceeds(StepByStep):
    """Sees whether a step makes infinity of finite numbers, or zero of others than zero."""

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
    """Let what is too large for a dtype be infinite at some steps.

    Args:
        dtype: a floating dtype.
        chosen: at which steps, by their numbers; by a negative one a sum is infinite with the other
            sign, if at all: each element at random.
        seed: decides which.

    Attributes:
        too_large: the numbers of the steps at which something is.
    """

    def __init__(self, dtype: torch.dtype, chosen: Collection[int], seed: int = 0) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)
        self.too_large: set[int] = set()
        self._largest = torch.finfo(dtype).max
        self._chosen = chosen
        self._step = 0

    def took(self, func: Any, args: Any, kwargs: Mapping[str, Any], returned: Any) -> None:
        """Let partial sums overflow, of what adds up."""
        self._step += 1
        if _name(func) not in _LINEAR or not is_wide(returned) or returned.is_complex():
            return
        sizes = [one.abs() if is_wide(one) else one for one in args]
        count = _terms(func, args, returned)
        size = func(*sizes, **kwargs) * count
        # So large may be a partial sum that has the other sign, and stays infinite.
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


def _terms(func: Any, args: Any, returned: Tensor) -> float:
    """By what a mean was divided; 1 for what is no mean."""
    return args[0].numel() / max(returned.numel(), 1) if _name(func) == "mean" else 1.0


def _name(func: Any) -> str:
    """What PyTorch's operator, or the primitive of that name, is called."""
    return str(func.overloadpacket).rpartition(".")[2]
