"""Solve equations for names that are not an axis by themselves: ``2*C`` is 8, so C is 4."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from opsmith.signature.parameters import Parameter
from opsmith.signature.sizes import expressions
from opsmith.signature.sizes.expressions import AnySize, Binary, Call, Expression, Integer, Name
from opsmith.signature.sizes.shapes import Fixed
from opsmith.untyped import Arguments


@dataclass(frozen=True)
class Equation:
    """A dimension that binds a name: its size is ``factor * name + rest``.

    Attributes:
        parameter: the tensor, or the list of tensors.
        position: the position of the dimension in the declared shape.
        name: the name that is bound; neither `factor` nor `rest` reads it.
        factor: the number that the name is multiplied by.
        rest: the number that is added.
    """

    parameter: str
    position: int
    name: str
    factor: Expression
    rest: Expression

    @property
    def reads(self) -> frozenset[str]:
        """The dimensions that must be known before."""
        return expressions.names(self.factor) | expressions.names(self.rest)

    @property
    def factor_text(self) -> str | None:
        """The factor as messages show it; `None` for a number."""
        return None if isinstance(self.factor, Integer) else expressions.text(self.factor)

    def numbers(self, dims: Mapping[str, AnySize], scalars: Arguments) -> tuple[AnySize, AnySize]:
        """Return `factor` and `rest` in a call."""
        return (
            expressions.evaluate(self.factor, dims, scalars),
            expressions.evaluate(self.rest, dims, scalars),
        )


def refused_size(
    equation: Equation, dim: Fixed, size: AnySize, factor: AnySize, rest: AnySize
) -> str:
    """Say why a size binds no name: no integer fits, or every one does. C++ has the same words."""
    name = equation.name
    if factor == 0:
        fits = "any" if size == rest else "no"
        return f"({dim}) is {size}, and {fits} {name} fits, since {equation.factor_text} is 0."
    found = f"({dim}) is {size}, expected {dim} for some {name}: "
    if (size - rest) % factor:
        more = rest % abs(factor)
        return f"{found}{f'{more} more than ' if more else ''}a multiple of {abs(factor)}."
    return f"{found}at {'least' if factor > 0 else 'most'} {rest}."


class UnsolvableError(ValueError):
    """Raised where a size does not decide a name; the message says why."""


def linear(expression: Expression, name: str) -> tuple[Expression, Expression]:
    """Return ``(factor, rest)``, neither of which reads `name`: ``factor * name + rest``.

    Raises:
        UnsolvableError: the expression has another form, in which several numbers may fit.
    """
    if expression == Name(name):
        return Integer(1), Integer(0)
    if name not in expressions.names(expression):
        return Integer(0), expression
    match expression:
        case Binary("+" | "-" as op, left, right):
            (factor, rest), (other_factor, other_rest) = linear(left, name), linear(right, name)
            return _simple(op, factor, other_factor), _simple(op, rest, other_rest)
        case Binary("*", left, right):
            for one, other in ((left, right), (right, left)):
                if name not in expressions.names(other):
                    factor, rest = linear(one, name)
                    return _simple("*", factor, other), _simple("*", rest, other)
            raise UnsolvableError(f"{expressions.text(expression)} multiplies {name} by itself")
        case Binary() | Call():
            raise UnsolvableError(
                f"{expressions.text(expression)} has the same value for several {name}"
            )
    raise AssertionError(expression)


def _simple(op: str, left: Expression, right: Expression) -> Expression:
    """Return ``left op right``, computed where both are numbers, and without zeros and ones."""
    match op, left, right:
        case "+" | "-" | "*", Integer(), Integer():
            return Integer(expressions.evaluate(Binary(op, left, right), {}, {}))
        case ("+" | "-", one, Integer(0)) | ("+", Integer(0), one):
            return one
        case ("*", one, Integer(1)) | ("*", Integer(1), one):
            return one
        case ("*", _, Integer(0)) | ("*", Integer(0), _):
            return Integer(0)
    return Binary(op, left, right)


def sources_of(tensors: Sequence[Parameter]) -> tuple[dict[str, str], tuple[Equation, ...]]:
    """Return the parameter that binds each name, and the equations in an order that solves them.

    Required tensors count before required lists, and these before optional arguments. In each of
    them a name that stands alone counts before an equation.
    """
    sources: dict[str, str] = {}
    equations: list[Equation] = []
    ranked = sorted(tensors, key=lambda p: (p.optional, p.is_tensor_list))
    shaped = [p for p in ranked if p.shape]
    for optional, many in ((False, False), (False, True), (True, False), (True, True)):
        group = [p for p in shaped if (p.optional, p.is_tensor_list) == (optional, many)]
        for parameter in group:
            for name in parameter.shape.binds():  # type: ignore[union-attr]
                sources.setdefault(name, parameter.name)
        here = [p for p in shaped if (p.optional, p.is_tensor_list) <= (optional, many)]
        while found := list(_solvable(here, sources)):
            for equation in found:
                sources.setdefault(equation.name, equation.parameter)
            equations += found
    order = [parameter.name for parameter in tensors]
    # Arguments are bound in order, whether or not they are required.
    return dict(sorted(sources.items(), key=lambda item: order.index(item[1]))), tuple(equations)


def _solvable(parameters: Iterable[Parameter], known: Mapping[str, str]) -> Iterable[Equation]:
    """Yield the equations in which all names but one are known."""
    for parameter in parameters:
        for position, dim in enumerate(parameter.dims):
            if not isinstance(dim, Fixed):
                continue
            unknown = expressions.names(dim.expression) - known.keys()
            if len(unknown) != 1:
                continue
            (name,) = unknown
            try:
                factor, rest = linear(dim.expression, name)
            except UnsolvableError:
                continue
            if factor != Integer(0):
                yield Equation(parameter.name, position, name, factor, rest)


def unsolvable(expression: Expression, known: Collection[str]) -> str:
    """Say why a dimension's size determines no further name; empty if the tensor may be absent."""
    unknown = sorted(expressions.names(expression) - set(known))
    if len(unknown) > 1:
        return f" (several {' and '.join(unknown)} fit one size)"
    try:
        for name in unknown:
            if linear(expression, name)[0] == Integer(0):
                return f" ({expressions.text(expression)} is the same for every {name})"
    except UnsolvableError as error:
        return f" ({error})"
    return ""
