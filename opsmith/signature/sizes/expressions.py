"""Integer expressions of dimensions and scalar arguments, as in shapes and ranges.

An expression has three uses: Python evaluates it (with `int` or symbolic sizes), generated C++
evaluates it (`opsmith.kernels` writes it), and messages show it as the user wrote it. ``//`` and
``%`` round towards negative infinity in all of them, as in Python.
"""

from __future__ import annotations

import ast
import functools
import keyword
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from opsmith.untyped import Arguments

#: An int, or the symbol that PyTorch has for one while it traces; also what comparing two gives.
AnySize = Any  # this package imports no torch


@dataclass(frozen=True)
class Integer:
    """A literal."""

    value: int


@dataclass(frozen=True)
class Name:
    """A named dimension."""

    name: str


@dataclass(frozen=True)
class Scalar:
    """An int argument, or (with `index`) one element of a sequence argument."""

    parameter: str
    index: int | None = None


@dataclass(frozen=True)
class Binary:
    """``left op right`` with op one of ``+ - * // %``."""

    op: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Call:
    """``min(...)`` or ``max(...)``."""

    function: str
    arguments: tuple[Expression, ...]


Expression = Integer | Name | Scalar | Binary | Call

_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
}
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "//": 2, "%": 2}
_EVALUATE: dict[str, Callable[[AnySize, AnySize], AnySize]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "//": lambda left, right: left // right,
    "%": lambda left, right: left % right,
}


def _extreme(
    plain: Callable[[AnySize, AnySize], object], symbolic: str
) -> Callable[[AnySize, AnySize], AnySize]:
    """Return `plain`, which for a symbolic size gives a symbol rather than compare."""

    def chosen(left: AnySize, right: AnySize) -> AnySize:
        for one, other in ((left, right), (right, left)):
            if hasattr(one, symbolic):  # PyTorch's SymInt
                return getattr(one, symbolic)(other)
        return plain(left, right)

    return chosen


_MIN, _MAX = _extreme(min, "__sym_min__"), _extreme(max, "__sym_max__")


class ExpressionError(ValueError):
    """Raised for a text that is not an expression of opsmith's; the message says why."""


def parse(text: str, scalars: Collection[str] = ()) -> Expression:
    """Parse an integer expression.

    Args:
        text: the expression; ``{name}`` and ``{name[0]}`` always mean an argument, a bare name
            means the scalar argument of that name if `scalars` has it, else a dimension.
        scalars: the names of the operator's int and sequence arguments.

    Raises:
        ExpressionError: the text is not an integer expression.
    """
    return _parsed(text, frozenset(scalars))


@functools.lru_cache(1024)  # operators use the same few names again and again
def _parsed(text: str, scalars: frozenset[str]) -> Expression:
    if text.isidentifier() and text.isascii() and not keyword.iskeyword(text):  # most are names
        return Scalar(text) if text in scalars else Name(text)
    return _convert(_tree(text, scalars, "an expression"), text, scalars)


def parse_comparison(text: str, scalars: Collection[str]) -> list[tuple[str, Expression]]:
    """Parse a comparison, or a chain of them, of integer expressions; see `parse`.

    Returns:
        Every side with the sign before it; the first has none.

    Raises:
        ExpressionError: the text is not such a comparison.
    """
    known = frozenset(scalars)
    tree = _tree(text, known, "a comparison")
    signs = [_COMPARISONS.get(type(op)) for op in tree.ops] if isinstance(tree, ast.Compare) else []
    if not isinstance(tree, ast.Compare) or None in signs:
        raise ExpressionError(
            f"{text!r} is not a comparison by one of {' '.join(_COMPARISONS.values())}, such as "
            "'H % K == 0' or 'T <= M*P'"
        )
    sides = [_convert(side, text, known) for side in (tree.left, *tree.comparators)]
    return list(zip(["", *map(str, signs)], sides, strict=True))


def _tree(text: str, scalars: frozenset[str], what: str) -> ast.expr:
    # Braces mark arguments. Remember the names inside, and parse the braces as parentheses.
    braced = _braced_names(text)
    source = text.replace("{", "(").replace("}", ")").strip()
    try:
        tree = ast.parse(source, mode="eval").body
    except SyntaxError:
        hint = "; it is written without spaces, as N+1" if text in _PRECEDENCE else ""
        raise ExpressionError(f"{text!r} is not {what}{hint}") from None
    for name in sorted(braced):
        if name not in scalars:
            raise ExpressionError(f"{{{name}}} names no int argument of the operator")
    return tree


def _braced_names(text: str) -> set[str]:
    names: set[str] = set()
    rest = text
    while "{" in rest:
        _, _, rest = rest.partition("{")
        inside, closing, rest = rest.partition("}")
        if not closing:
            raise ExpressionError(f"{text!r} has a {{ that is not closed")
        try:
            tree = ast.parse(inside.strip(), mode="eval")
        except SyntaxError:
            raise ExpressionError(f"{{{inside}}} is not an expression") from None
        names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - {"min", "max"}
    return names


def _convert(node: ast.expr, text: str, scalars: frozenset[str]) -> Expression:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return Integer(value)
        case ast.Name(id=name):
            return Scalar(name) if name in scalars else Name(name)
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(index))):
            if name not in scalars:
                raise ExpressionError(f"{name}[{index}] names no sequence argument of the operator")
            return Scalar(name, index)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _convert(operand, text, scalars)
            if isinstance(inner, Integer):
                return Integer(-inner.value)
            return Binary("-", Integer(0), inner)
        case ast.BinOp(left=left, op=operator, right=right):
            symbol = _OPERATORS.get(type(operator))
            if symbol is None:
                raise ExpressionError(
                    f"{text!r} uses an operator that sizes do not have; there are + - * // % "
                    "min(...) max(...)"
                )
            sides = _convert(left, text, scalars), _convert(right, text, scalars)
            if symbol in ("//", "%") and sides[1] == Integer(0):
                raise ExpressionError(f"{text!r} divides by zero")
            return Binary(symbol, *sides)
        case ast.Call(func=ast.Name(id="min" | "max" as function), args=args, keywords=[]) if args:
            return Call(function, tuple(_convert(argument, text, scalars) for argument in args))
    raise ExpressionError(
        f"{ast.unparse(node)!r} is not an integer, a name, an argument in braces, "
        "min(...) or max(...)"
    )


def evaluate(expression: Expression, dims: Mapping[str, AnySize], scalars: Arguments) -> AnySize:
    """Return the value of `expression`: an `int`, or a symbolic int if a size is symbolic.

    Raises:
        KeyError: a dimension has no value in `dims` (an optional tensor that binds it is absent).
        ZeroDivisionError: ``//`` or ``%`` by zero.
    """
    match expression:
        case Integer(value):
            return value
        case Name(name):
            return dims[name]
        case Scalar(parameter, None):
            return scalars[parameter]
        case Scalar(parameter, index):
            return scalars[parameter][index]
        case Binary(op, left, right):
            return _EVALUATE[op](evaluate(left, dims, scalars), evaluate(right, dims, scalars))
        case Call(function, arguments):
            values = [evaluate(argument, dims, scalars) for argument in arguments]
            return functools.reduce(_MIN if function == "min" else _MAX, values)
    raise AssertionError(expression)


def leaves(expression: Expression) -> tuple[Integer | Name | Scalar, ...]:
    """Return every literal, dimension and argument in `expression`, left to right."""
    match expression:
        case Binary(_, left, right):
            return leaves(left) + leaves(right)
        case Call(_, arguments):
            return tuple(leaf for argument in arguments for leaf in leaves(argument))
        case _:
            return (expression,)


def names(expression: Expression) -> frozenset[str]:
    """Return the dimensions in `expression`."""
    return frozenset(leaf.name for leaf in leaves(expression) if isinstance(leaf, Name))


def scalars_of(expression: Expression) -> frozenset[Scalar]:
    """Return the arguments in `expression`."""
    return frozenset(leaf for leaf in leaves(expression) if isinstance(leaf, Scalar))


def text(expression: Expression) -> str:
    """Return `expression` as messages show it."""
    return _render(
        expression,
        lambda name: name,
        lambda parameter, index: parameter if index is None else f"{parameter}[{index}]",
    )


def _render(
    expression: Expression,
    dim: Callable[[str], str],
    scalar: Callable[[str, int | None], str],
    outer: int = 0,
) -> str:
    match expression:
        case Integer(value):
            return str(value)
        case Name(name):
            return dim(name)
        case Scalar(parameter, index):
            return scalar(parameter, index)
        case Call(function, arguments):
            return f"{function}({', '.join(_render(a, dim, scalar) for a in arguments)})"
        case Binary(op, left, right):
            level = _PRECEDENCE[op]
            first = _render(left, dim, scalar, level)
            second = _render(right, dim, scalar, level + 1)
            return f"({first}{op}{second})" if level < outer else f"{first}{op}{second}"
    raise AssertionError(expression)
