"""The distribution of an operator's random results, as stated by its author."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from opsmith.errors import DeclarationError
from opsmith.signature import Signature

Stated = Mapping[str, Any]
"""By name: numbers uniform in [0, 1], or bools with the probability of True."""


@dataclass(frozen=True)
class DistributionRule:
    """An author's function that computes, from a call, the random numbers behind its results.

    Attributes:
        signature: the operator's signature.
        function: the author's function.
        names: names of the function's parameters, an argument or result each.
    """

    signature: Signature
    function: Callable[..., Stated]
    names: tuple[str, ...]

    @classmethod
    def read(cls, signature: Signature, function: Callable[..., Stated]) -> DistributionRule:
        """Create a rule from a function given to `register_distribution`.

        Raises:
            DeclarationError: the operator is not random, or a parameter of the function is neither
                an argument nor a result.
        """
        head = f"{signature.qualname}: register_distribution"
        if signature.drawn is None:
            raise DeclarationError(
                f"{head}: the operator has no distribution, since no parameter is an opsmith.Philox"
            )
        names = tuple(inspect.signature(function).parameters)
        known = [*signature.by_name, *_result_names(signature)]
        for name in names:
            if name not in known:
                raise DeclarationError(
                    f"{head}: the function takes {name!r}, which is neither an argument nor a "
                    f"result; there are {', '.join(known)}"
                )
        return cls(signature, function, names)

    def __call__(
        self, arguments: Mapping[str, Any], results: list[Any]
    ) -> dict[str, tuple[Tensor, float | None]]:
        """Return the random numbers behind the results of a call, by the author's names for them.

        Args:
            arguments: the arguments by name.
            results: the results in order, perhaps followed by what the call wrote into.

        Returns:
            For each name a pair: numbers that are uniform in [0, 1] and `None`, or bools and the
            probability of True.

        Raises:
            DeclarationError: the function returns something else.
        """
        given = {**arguments, **dict(zip(_result_names(self.signature), results, strict=False))}
        stated = self.function(**{name: given[name] for name in self.names})
        found: dict[str, tuple[Tensor, float | None]] = {}
        for name, value in stated.items() if isinstance(stated, Mapping) else [("", stated)]:
            values, share = value if isinstance(value, tuple) and len(value) == 2 else (value, None)
            decisions = isinstance(values, Tensor) and values.dtype.is_floating_point is False
            if not name or not isinstance(values, Tensor) or decisions != (share is not None):
                raise DeclarationError(
                    f"{self.signature.qualname}: register_distribution: the function returned "
                    f'{type(stated).__name__}, expected {{"name": numbers uniform in [0, 1]}} or '
                    '{"name": (bools, probability)}'
                )
            found[name] = values.reshape(-1), None if share is None else float(share)
        return found


def _result_names(signature: Signature) -> list[str]:
    """Return the names of results, as `register_backward` names them."""
    if len(signature.results) == 1:
        return ["result"]
    return [f"result_{result.name}" for result in signature.results]
