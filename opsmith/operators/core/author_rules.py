"""Keep what authors state of calls: the cost, and the distribution of random results.

Benchmarks compare a kernel's times with the cost: the data that a call must move, and the
operations that it must compute.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from opsmith.errors import DeclarationError
from opsmith.operators.core.arguments import DTYPES, describe, generic_dtype
from opsmith.signature import Signature, bind
from opsmith.signature.dtype_variables import parts
from opsmith.untyped import Arguments, Value

_ITEMSIZE = "itemsize"
_Stated = Arguments
"""By name: numbers uniform in [0, 1], or bools with the probability of True."""


@dataclass(frozen=True)
class Cost:
    """The least work that any correct implementation of one call has to do.

    Attributes:
        bytes: number of bytes of arguments and results to read and write; `None` if not stated.
        operations: number of arithmetic operations, where a multiply-add counts as two; `None` if
            not stated.
    """

    bytes: int | None = None
    operations: int | None = None

    def __post_init__(self) -> None:
        for name in ("bytes", "operations"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or int(value) != value or value < 0):
                raise ValueError(f"Cost({name}={value!r}): expected a count that is not negative")


@dataclass(frozen=True)
class CostRule:
    """An author's function from the sizes of a call to its cost.

    Attributes:
        names: names of the function's parameters: a dimension, an argument or ``itemsize`` each.
    """

    signature: Signature
    function: Callable[..., Cost]
    names: tuple[str, ...]

    @classmethod
    def read(cls, signature: Signature, function: Callable[..., Cost]) -> CostRule:
        """Create a rule from a function given to `register_cost`.

        Raises:
            DeclarationError: a parameter of the function is neither a dimension nor an argument.
        """
        known = [*signature.dims, *signature.by_name]
        known += [_ITEMSIZE] if signature.generic is not None else []
        head = f"{signature.qualname}: register_cost"
        names = _names_of(function, known, head, "a dimension nor an argument")
        return cls(signature, function, names)

    def __call__(self, arguments: Arguments) -> Cost:
        """Return the cost of a call with these arguments.

        Raises:
            DeclarationError: the function returns something other than a `Cost`.
        """
        given = {name: arguments[name] for name in self.names if name in arguments}
        bound = bind(self.signature, describe(arguments, self.signature))
        given |= {name: bound.dims[name] for name in self.names if name in bound.dims}
        given |= {name: bound.variadic[name] for name in self.names if name in bound.variadic}
        if _ITEMSIZE in self.names and _ITEMSIZE not in given:
            dtype = generic_dtype(self.signature, arguments) or "float32"
            given[_ITEMSIZE] = DTYPES[next(iter(parts(dtype)))].itemsize
        cost = self.function(**given)
        if not isinstance(cost, Cost):
            raise DeclarationError(
                f"{self.signature.qualname}: register_cost: the function returned {cost!r}, "
                "expected opsmith.Cost(bytes=…, operations=…)"
            )
        return cost


@dataclass(frozen=True)
class DistributionRule:
    """An author's function that computes, from a call, the random numbers behind its results.

    Attributes:
        names: names of the function's parameters, an argument or result each.
    """

    signature: Signature
    function: Callable[..., _Stated]
    names: tuple[str, ...]

    @classmethod
    def read(cls, signature: Signature, function: Callable[..., _Stated]) -> DistributionRule:
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
        known = [*signature.by_name, *_result_names(signature)]
        names = _names_of(function, known, head, "an argument nor a result")
        return cls(signature, function, names)

    def __call__(
        self, arguments: Arguments, results: list[Value]
    ) -> dict[str, tuple[Tensor, float | None]]:
        """Return the random numbers behind the results of a call, by the author's names for them.

        Args:
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
            if isinstance(share, Tensor) and share.numel() != 1:
                raise DeclarationError(
                    f"{self.signature.qualname}: register_distribution: {name!r} has a probability "
                    f"for each of {share.numel()} bools, expected one number for all of them"
                )
            found[name] = values.reshape(-1), None if share is None else float(share)
        return found


def _result_names(signature: Signature) -> list[str]:
    """Return the names of results, as `register_backward` names them."""
    if len(signature.results) == 1:
        return ["result"]
    return [f"result_{result.name}" for result in signature.results]


def _names_of(
    function: Callable[..., object], known: Sequence[str], head: str, kinds: str
) -> tuple[str, ...]:
    """Return the names of a function's parameters; refuse a name that is not known."""
    names = tuple(inspect.signature(function).parameters)
    for name in names:
        if name not in known:
            raise DeclarationError(
                f"{head}: the function takes {name!r}, which is neither {kinds}; there are "
                f"{', '.join(dict.fromkeys(known))}"
            )
    return names
