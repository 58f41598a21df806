"""Measure the number and size of the terms of each result element by perturbing the arguments.

Every floating-point input is multiplied by ``1 + t r`` with a tiny t and random r, and the
reference is evaluated again:

* r = random signs: the change has the size ``s = sqrt(sum_i (df/dx_i x_i)^2)``, the 2-norm of the
  terms, estimated by the root mean square over a few probes.
* r = Cauchy distributed: the change is Cauchy distributed with the scale
  ``sum_i |df/dx_i x_i|``, their 1-norm (Indyk's 1-stable sketch, J. ACM 53, 2006), estimated by
  the geometric mean.

``n = (1-norm / 2-norm)^2`` is the effective number of terms: exactly n for n equal ones, 1 where
one dominates.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from opsmith.operators.core.arguments import is_float8, map_tensors

_STEP = 1e-9
#: The same where the reference itself asks for single precision or less (`x.float() @ y.float()`),
#: whose rounding hides smaller steps.
_WIDE_STEP = 1e-5

#: A change of so many steps is looked at with a step so much smaller: if only this part of it goes,
#: it is a jump.
_STEEP, _NEARER, _JUMP = 1e3, 64.0, 1e-6

Evaluate = Callable[[Mapping[str, Any]], list[Tensor]]
"""A function from arguments by name to all result tensors of a call."""


def probe(
    evaluate: Evaluate,
    wide: Mapping[str, Any],
    values: Sequence[Tensor],
    floats: int,
    probes: int = 6,
    seed: int = 0,
    sees_jumps: bool = False,
) -> tuple[list[Tensor | None], list[Tensor | None], bool]:
    """Perturb the arguments, and measure the change of each result element.

    Args:
        evaluate: function that returns the right results for arguments by name.
        wide: the arguments in double precision.
        values: the right results for `wide`.
        floats: number of floating-point numbers in the arguments.
        probes: number of evaluations for each of the two norms.
        sees_jumps: whether a change that is as large for a much smaller step is no term: a jump.

    Returns:
        For each result the 2-norm of the terms of each element, and their effective number; `None`
        for integers and booleans. Last, whether no perturbation changed an integer or a boolean.
    """
    steady = True
    inexact = [is_inexact(value) for value in values]
    step = _WIDE_STEP if any(map(_is_narrow, values)) else _STEP
    norms = [torch.zeros(value.shape, dtype=torch.float64) for value in values]
    logarithms = [torch.zeros(value.shape, dtype=torch.float64) for value in values]
    generator = torch.Generator().manual_seed(seed)
    counts = [0, 0]
    for number in range(2 * probes if floats and any(inexact) else 0):
        cauchy = number % 2 == 1
        state = generator.get_state()

        def moved(step: float, cauchy: bool = cauchy, state: Tensor = state) -> list[Tensor]:
            move = functools.partial(_move, generator=generator, cauchy=cauchy, step=step)
            generator.set_state(state)
            return evaluate({name: map_inexact(value, move) for name, value in wide.items()})

        nearer: list[Tensor] = []
        try:
            results = moved(step)
            if sees_jumps and step == _STEP and any(map(_is_steep, results, values)):
                nearer = moved(step / _NEARER)
        except Exception:
            continue  # the perturbed argument may be out of its range
        if [r.shape for r in results] != [v.shape for v in values]:
            steady = False
            continue
        counts[cauchy] += 1
        for position, (result, value) in enumerate(zip(results, values, strict=True)):
            if not inexact[position]:
                steady = steady and torch.equal(result, value)
                continue
            change = magnitude(result.detach() - value) / step
            change = torch.nan_to_num(change, nan=0.0, posinf=0.0, neginf=0.0)
            if nearer and nearer[position].shape == value.shape:
                # The arguments are exact: a tie of theirs is one for the kernel too.
                other = magnitude(nearer[position].detach() - result.detach()) / step
                change = torch.where(other <= _JUMP * change, 0.0, change)
            if cauchy:
                logarithms[position] += torch.log(change.clamp_min(1e-300))
            else:
                # The square of a very large or small number overflows or underflows.
                norms[position] = torch.hypot(norms[position], change)
    spread: list[Tensor | None] = []
    terms: list[Tensor | None] = []
    for position in range(len(values)):
        if not inexact[position]:
            spread.append(None)
            terms.append(None)
            continue
        two = norms[position] / max(counts[0], 1) ** 0.5
        one = torch.exp(logarithms[position] / max(counts[1], 1)) if counts[1] else two
        ratio = torch.where(two > 0, one / two.clamp_min(1e-300), torch.ones_like(two))
        spread.append(two)
        terms.append((ratio * ratio).clamp(1.0, float(max(floats, 1))))
    return spread, terms, steady


def _is_steep(moved: Tensor, value: Tensor) -> bool:
    """Return whether an element changed by much more than a well-conditioned function's."""
    if not is_inexact(value) or moved.shape != value.shape or not value.numel():
        return False
    size = magnitude(value)
    return bool((magnitude(moved.detach() - value) > _STEEP * _STEP * (size + size.mean())).any())


def _is_narrow(value: Tensor) -> bool:
    return is_inexact(value) and value.dtype not in (torch.float64, torch.complex128)


def map_inexact(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return an argument with `change` applied to each tensor whose numbers PyTorch rounds."""
    return map_tensors(value, lambda tensor: change(tensor) if is_inexact(tensor) else tensor)


def _move(value: Tensor, generator: torch.Generator, cauchy: bool, step: float) -> Tensor:
    if cauchy:
        # The quotient of two normal variates is Cauchy distributed.
        normal = torch.randn((2, *value.shape), generator=generator, dtype=torch.float64)
        factor = (normal[0] / normal[1]).clamp(-1e4, 1e4)
    else:
        # Signs of slightly different sizes, so that two equal terms do not cancel.
        uniform = torch.rand(value.shape, generator=generator, dtype=torch.float64) * 2 - 1
        factor = uniform + 0.5 * torch.where(uniform < 0, -1.0, 1.0)
    return value * (1 + step * factor)


def magnitude(value: Tensor) -> Tensor:
    """Return the absolute value of each element in double precision."""
    return value.abs().to(torch.float64)


def is_inexact(value: Tensor) -> bool:
    """Return whether operators of PyTorch round the numbers of a tensor."""
    # PyTorch converts to float8, but does not compute in it.
    return (value.is_floating_point() or value.is_complex()) and not is_float8(value.dtype)
