"""The data that a call must move and the operations it must compute, as stated by its author.

Benchmarks compare a kernel's times with it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from opsmith.errors import DeclarationError
from opsmith.operators.core.arguments import DTYPES, describe, generic_dtype
from opsmith.signature import Signature, bind
from opsmith.signature.dtype_variables import parts

_ITEMSIZE = "itemsize"


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
        signature: the operator's signature.
        function: the author's function.
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
