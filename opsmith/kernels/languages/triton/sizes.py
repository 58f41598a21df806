"""Sizes that are unknown before a call; computing with them makes expressions.

The same function computes the grid of a call in Python, from the call's sizes, and the grid in a
compiled library, from the sizes of this module.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NoReturn

from opsmith.errors import DeclarationError
from opsmith.signature.model import Signature
from opsmith.signature.parameters import ScalarType, SequenceType, TensorType
from opsmith.signature.sizes.expressions import Binary, Expression, Integer, Name, Scalar
from opsmith.signature.sizes.shapes import Fixed, Shape, Variadic
from opsmith.untyped import Arguments, Value


def _operator(op: str, *, swap: bool = False) -> Callable[[Size, Value], Value]:
    """Return the method of `Size` for an operator of Python's, or for it with swapped operands."""

    def method(self: Size, other: object) -> object:
        if isinstance(other, bool) or not isinstance(other, int | Size):
            return NotImplemented
        left, right = self.expression, expression_of(other)
        return Size(Binary(op, right, left) if swap else Binary(op, left, right))

    return method


class Size:
    """An integer that differs from call to call.

    Attributes:
        expression: the formula of its value. A `Name` is a dimension, or a property of a tensor in
            the form of `tensor_property`.
    """

    def __init__(self, expression: Expression) -> None:
        self.expression = expression

    __add__, __radd__ = _operator("+"), _operator("+", swap=True)
    __sub__, __rsub__ = _operator("-"), _operator("-", swap=True)
    __mul__, __rmul__ = _operator("*"), _operator("*", swap=True)
    __floordiv__, __rfloordiv__ = _operator("//"), _operator("//", swap=True)
    __mod__, __rmod__ = _operator("%"), _operator("%", swap=True)

    def __neg__(self) -> object:
        return 0 - self

    def _undecided(self, *_: object) -> NoReturn:
        raise UndecidedError

    __bool__ = __int__ = __index__ = __float__ = __truediv__ = __pow__ = _undecided
    __lt__ = __le__ = __gt__ = __ge__ = __and__ = __or__ = __rshift__ = __lshift__ = _undecided
    __eq__ = __ne__ = _undecided
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"Size({self.expression})"


class UndecidedError(Exception):
    """Raised when a function needs the value of a size that is unknown before a call."""


class SizesOfTensor:
    """A tensor whose sizes are unknown before a call.

    Args:
        shape: its declared shape; `None` if it has none.
    """

    def __init__(self, name: str, shape: Shape | None) -> None:
        self._name = name
        dims = shape.dims if shape is not None else None
        if dims is not None and any(isinstance(dim, Variadic) for dim in dims):
            dims = None
        self._dims = dims

    def numel(self) -> Size:
        """Return the number of elements."""
        if self._dims is None or not all(isinstance(dim, Fixed) for dim in self._dims):
            return Size(Name(tensor_property(self._name, "numel")))
        return functools.reduce(lambda left, right: left * right, self.shape, Size(Integer(1)))

    def size(self, dim: int) -> Size:
        """Return the size of a dimension."""
        place = self._place(dim)
        declared = self._dims[place] if self._dims is not None else None
        if isinstance(declared, Fixed):
            return Size(declared.expression)
        return Size(Name(tensor_property(self._name, "size", place)))

    def stride(self, dim: int) -> Size:
        """Return the stride of a dimension."""
        return Size(Name(tensor_property(self._name, "stride", self._place(dim))))

    def dim(self) -> int:
        """Return the number of dimensions."""
        if self._dims is None:
            raise UndecidedError
        return len(self._dims)

    @property
    def shape(self) -> tuple[Size, ...]:
        """The size of each dimension."""
        return tuple(self.size(dim) for dim in range(self.dim()))

    def _place(self, dim: int) -> int:
        return dim if dim >= 0 else self.dim() + dim


def tensor_property(tensor: str, what: str, dim: int | None = None) -> str:
    """Return the name of a tensor's property as a size: ``x.size(0)``, which is also C++."""
    return f"{tensor}.{what}({'' if dim is None else dim})"


def expression_of(value: int | Size) -> Expression:
    """Return an int or a size as an expression."""
    return value.expression if isinstance(value, Size) else Integer(int(value))


def unknown_sizes(signature: Signature) -> dict[str, object]:
    """Return, by name, the unknown sizes that stand for the values of a call."""
    found: dict[str, object] = {
        dim: Size(Name(dim)) for dim in signature.dims if dim not in signature.variadic_dims
    }
    for parameter in signature.parameters:
        match parameter.type:
            case TensorType(_, shape):
                found[parameter.name] = SizesOfTensor(parameter.name, shape)
            case ScalarType("int") if not parameter.optional:
                found[parameter.name] = Size(Scalar(parameter.name))
            case SequenceType("int", int(length)) if not parameter.optional:
                found[parameter.name] = tuple(
                    Size(Scalar(parameter.name, position)) for position in range(length)
                )
    for result in signature.results:
        found[result.name] = SizesOfTensor(result.name, result.tensor_type.shape)
    return found


def traced(
    function: Callable[..., object], values: Arguments, names: tuple[str, ...], what: str
) -> object:
    """Return the result of a function of sizes, applied to unknown sizes.

    Args:
        function: the function, such as that of the grid.
        values: the result of `unknown_sizes`, and known numbers.
        names: the names of the function's parameters.
        what: the function's description, for messages.

    Raises:
        DeclarationError: the function needs the value of a size, or something else that is unknown
            before a call.
    """
    for name in names:
        if name not in values:
            raise DeclarationError(
                f"{what} takes {name!r}, whose value differs from call to call: a library that is "
                "compiled ahead of time computes with dimensions, ints and sizes of tensors only"
            )
    try:
        return function(**{name: values[name] for name in names})
    except UndecidedError:
        raise DeclarationError(
            f"{what} branches on the value of a size, which is known only in a call: a library "
            "that is compiled ahead of time computes with + - * // % and triton.cdiv. Let meta= "
            "compute what depends on a size in another way, with register_sizes"
        ) from None
