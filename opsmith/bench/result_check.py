"""Whether the results of timed calls are right."""

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

#: Where measuring the tolerance takes longer, that of the first call serves the others.
_SLOW = 0.3


class Verdict:
    """Compares results with the reference in double precision.

    The tolerance is that of the checks, measured at every element. Where this takes long, it is
    measured for the first call, and each further one is compared with its largest one.

    Args:
        operator: whose results.
        gradient: whether they are the gradients of its arguments, where each result is its own
            incoming gradient.
    """

    def __init__(self, operator: Operator, *, gradient: bool = False) -> None:
        self._operator = operator
        self._gradient = gradient
        self._first: Expected | None = None
        self.slow = False

    def obstacle(self, arguments: Mapping[str, Any]) -> str:
        """Why nothing says what is right; empty where the reference does."""
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
        """What is wrong with the results of a call; empty where nothing is."""
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
        """The right results, with the largest tolerance of the first call's at every element."""
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
        )


def _largest(known: Tensor | None, value: Tensor) -> Tensor | None:
    if known is None:
        return None
    largest = float(known.max()) if known.numel() else 0.0
    return torch.full(value.shape, largest, dtype=torch.float64)
