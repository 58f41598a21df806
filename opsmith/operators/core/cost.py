"""What a call must move and compute, as its author states it, for benchmarks to measure against."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from opsmith.errors import DeclarationError
from opsmith.operators.core.arguments import DTYPES, describe, generic_dtype
from opsmith.signature import Signature, bind

_ITEMSIZE = "itemsize"


@dataclass(frozen=True)
class Cost:
    """What any right implementation of one call has to do, at least.

    Attributes:
        bytes: how many bytes of arguments and results it has to read and write; `None` where nobody
            says.
        operations: how many arithmetic operations it has to do, where a multiply-add counts as two;
            `None` where nobody says.
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
        signature: the operator's.
        function: what the author wrote.
        names: what it takes, each a dimension, an argument or ``itemsize``.
    """

    signature: Signature
    function: Callable[..., Cost]
    names: tuple[str, ...]

    @classmethod
    def read(cls, signature: Signature, function: Callable[..., Cost]) -> CostRule:
        """Take a function as `register_cost` does.

        Raises:
            DeclarationError: it takes something that a call does not have.
        """
        names = tuple(inspect.signature(function).parameters)
        known = [*signature.dims, *signature.by_name]
        known += [_ITEMSIZE] if signature.generic is not None else []
        for name in names:
            if name not in known:
                raise DeclarationError(
                    f"{signature.qualname}: register_cost: the function takes {name!r}, which is "
                    "neither a dimension nor an argument; there are "
                    f"{', '.join(dict.fromkeys(known))}"
                )
        return cls(signature, function, names)

    def __call__(self, arguments: Mapping[str, Any]) -> Cost:
        """The cost of a call with these arguments.

        Raises:
            DeclarationError: the function returns something else than a `Cost`.
        """
        given = {name: arguments[name] for name in self.names if name in arguments}
        bound = bind(self.signature, describe(arguments, self.signature))
        given |= {name: bound.dims[name] for name in self.names if name in bound.dims}
        given |= {name: bound.variadic[name] for name in self.names if name in bound.variadic}
        if _ITEMSIZE in self.names and _ITEMSIZE not in given:
            dtype = generic_dtype(self.signature, arguments) or "float32"
            given[_ITEMSIZE] = DTYPES[dtype].itemsize
        cost = self.function(**given)
        if not isinstance(cost, Cost):
            raise DeclarationError(
                f"{self.signature.qualname}: register_cost: the function returned {cost!r}, "
                "expected opsmith.Cost(bytes=…, operations=…)"
            )
        return cost
