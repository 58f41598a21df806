"""Check that the results of timed calls are right."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.cases.layouts import plain
from opsmith.checks.numerics.comparison import compare
from opsmith.checks.numerics.gradients import expected_gradients, leaves_of
from opsmith.checks.numerics.oracle import Expected, RefusedError, expected_of, widen
from opsmith.operators import Operator

#: If measuring the tolerance takes more seconds than this, the first call's tolerance serves all
#: calls.
_SLOW = 0.3


class Verifier:
    """Compares results with the reference in double precision.

    The tolerance is the one of the checks, measured at every element. If that takes long, it is
    measured for the first call only, and each later call is compared with its largest value.

    Args:
        gradient: whether the results are the gradients of the operator's arguments, with each
            result of the operator as its own incoming gradient.
    """

    def __init__(self, operator: Operator, *, gradient: bool = False) -> None:
        self._operator = operator
        self._gradient = gradient
        self._first: Expected | None = None
        self.slow = False

    def obstacle(self, arguments: Mapping[str, Any]) -> str:
        """Return the reason why no right results exist to compare with; empty if they exist."""
        if not self._gradient:
            return ""
        _, leaves = leaves_of(arguments, self._operator.signature)
        if not any(leaf.numel() for leaf in leaves.values()):
            return "no argument of these can have a gradient"
        try:
            self._truth(arguments)
        except RefusedError as error:
            return f"the reference has no gradient: {error}"
        return ""

    def problem(self, arguments: Mapping[str, Any], results: Sequence[Tensor]) -> str:
        """Describe an error in the results of a call; empty if they are right."""
        try:
            truth = self._truth(arguments)
        except RefusedError as error:
            return f"the reference refuses the arguments: {error}"
        return compare(results, truth).problem or ""

    def _truth(self, arguments: Mapping[str, Any]) -> Expected:
        if self.slow and self._first is not None and self._first.exact:
            return self._rough(arguments, self._first)
        started = time.perf_counter()
        truth = self._measured(arguments)
        self.slow = self.slow or time.perf_counter() - started > _SLOW
        self._first = self._first or truth
        return truth

    def _measured(self, arguments: Mapping[str, Any]) -> Expected:
        if not self._gradient:
            return expected_of(self._operator, arguments)
        truth = expected_gradients(self._operator, arguments)
        if truth is None:
            raise RefusedError("it is not made of what PyTorch can differentiate")
        return truth

    def _rough(self, arguments: Mapping[str, Any], first: Expected) -> Expected:
        """Return the right results, with the first call's largest tolerance everywhere."""
        wide = {name: widen(value) for name, value in arguments.items()}
        try:
            values = [plain(value) for value in first.evaluate(wide)]
        except Exception as error:
            raise RefusedError(f"{type(error).__name__}: {error}") from None
        return Expected(
            first.names,
            values,
            [_largest(one, value) for one, value in zip(first.spread, values, strict=True)],
            [_largest(one, value) for one, value in zip(first.terms, values, strict=True)],
            True,
            first.evaluate,
            arguments,
            first.derivative,
            signature=first.signature,
        )


def _largest(known: Tensor | None, value: Tensor) -> Tensor | None:
    if known is None:
        return None
    largest = float(known.max()) if known.numel() else 0.0
    return torch.full(value.shape, largest, dtype=torch.float64)
