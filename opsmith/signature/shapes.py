"""Symbolic shapes: what stands between the quotes of a jaxtyping annotation."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from opsmith.signature import expressions
from opsmith.signature.expressions import Expression, ExpressionError, Name


@dataclass(frozen=True)
class Fixed:
    """One dimension whose size is an expression; a plain name binds it."""

    expression: Expression

    def __str__(self) -> str:
        return expressions.text(self.expression)


@dataclass(frozen=True)
class Variadic:
    """Any number of dimensions, ``*name``; without a name (``...``) they are not compared."""

    name: str | None

    def __str__(self) -> str:
        return "..." if self.name is None else f"*{self.name}"


@dataclass(frozen=True)
class Unnamed:
    """One dimension of any size, ``_``."""

    def __str__(self) -> str:
        return "_"


Dim = Fixed | Variadic | Unnamed


@dataclass(frozen=True)
class Shape:
    """The dimensions of one tensor, at most one of them variadic.

    Attributes:
        text: the annotation's own words.
        scalars: names of the operator's int and sequence arguments, in their order as words.
    """

    text: str
    scalars: tuple[str, ...] = ()

    @functools.cached_property
    def dims(self) -> tuple[Dim, ...]:
        """The dimensions in order.

        Raises:
            ShapeError: the text is not a shape; whoever declares is told by `parse`.
        """
        return _parsed(self.text, self.scalars)

    @property
    def variadic(self) -> int | None:
        """The position of the variadic dimension, if there is one."""
        for position, dim in enumerate(self.dims):
            if isinstance(dim, Variadic):
                return position
        return None

    @property
    def rank(self) -> int:
        """How many dimensions there are, a variadic one not counted."""
        return sum(not isinstance(dim, Variadic) for dim in self.dims)

    def axes(self) -> Iterator[tuple[int, Dim]]:
        """Each dimension with its axis in a tensor, counted from the end past a variadic one."""
        past = 0
        for position, dim in enumerate(self.dims):
            yield position - past, dim
            past = len(self.dims) if isinstance(dim, Variadic) else past

    def binds(self) -> tuple[str, ...]:
        """The names that a tensor of this shape gives a size to, in order."""
        return bound_by(self.dims)


def bound_by(dims: Iterable[Dim]) -> tuple[str, ...]:
    """The names that a tensor of these dimensions gives a size to, in order."""
    found: list[str] = []
    for dim in dims:
        match dim:
            case Fixed(Name(name)) | Variadic(str(name)) if name not in found:
                found.append(name)
    return tuple(found)


class ShapeError(ValueError):
    """The text is not a shape; says why."""


# Compiled when they are first used: a declaration of an installed package needs none.
_NAME = r"[A-Za-z][A-Za-z0-9_]*"
_DOCUMENTED = r"[A-Za-z_]\w*=(.+)"
_UNSUPPORTED = {
    "#": "broadcasting dimensions (#) are not supported: write the dimension's name, and let the "
    "caller expand",
    "?": "tree-path dimensions (?) mean nothing for an operator's arguments",
}


def parse(text: str, scalars: Collection[str] = ()) -> Shape:
    """Parse the text of a jaxtyping shape.

    Args:
        text: dimensions separated by spaces (spaces inside parentheses, brackets and braces do
            not separate).
        scalars: names of the operator's int and sequence arguments.

    Raises:
        ShapeError: with the offending dimension quoted.
    """
    shape = Shape(text, tuple(sorted(scalars)))
    _parsed(text, shape.scalars)
    return shape


@functools.lru_cache(256)  # results, gradients and gradients' operators have arguments' shapes
def _parsed(text: str, scalars: tuple[str, ...]) -> tuple[Dim, ...]:
    dims = tuple(_dim(word, scalars) for word in _words(text))
    if sum(isinstance(dim, Variadic) for dim in dims) > 1:
        raise ShapeError("has more than one '*name' or '...'; one is the most that can be matched")
    return dims


def _words(text: str) -> list[str]:
    words: list[str] = []
    depth = 0
    for character in text:
        if character.isspace() and depth == 0:
            words.append("")
            continue
        depth += (character in "([{") - (character in ")]}")
        if not words:
            words.append("")
        words[-1] += character
    return [word for word in words if word]


def _dim(word: str, scalars: Collection[str]) -> Dim:
    if word == "...":
        return Variadic(None)
    # jaxtyping lets a name document an integer: "rows=4".
    documented = re.fullmatch(_DOCUMENTED, word)
    if documented:
        word = documented[1]
    if word[0] in _UNSUPPORTED:
        raise ShapeError(f"dimension {word!r}: {_UNSUPPORTED[word[0]]}")
    if word.startswith("*"):
        name = word[1:]
        if name.startswith("_"):
            return Variadic(None)
        if not re.fullmatch(_NAME, name):
            raise ShapeError(f"dimension {word!r}: a name must follow the *")
        return Variadic(name)
    if word.startswith("_"):
        return Unnamed()
    if word in scalars:
        raise ShapeError(
            f"dimension {word!r} is also an argument; write {{{word}}} for the argument's value, "
            "or give the dimension another name"
        )
    try:
        expression = expressions.parse(word, scalars)
    except ExpressionError as error:
        raise ShapeError(f"dimension {word!r}: {error}") from None
    return Fixed(expression)
