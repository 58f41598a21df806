"""Symbolic shapes: the text in quotes of a jaxtyping annotation."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from opsmith.signature.sizes import expressions
from opsmith.signature.sizes.expressions import AnySize, Expression, ExpressionError, Name
from opsmith.untyped import Arguments


@dataclass(frozen=True)
class Fixed:
    """A dimension whose size is an expression; a plain name binds the size."""

    expression: Expression

    def __str__(self) -> str:
        return expressions.text(self.expression)


@dataclass(frozen=True)
class Variadic:
    """Any number of dimensions, ``*name``; without a name (``...``) they are not compared.

    Attributes:
        name: the name, if a call has one value of it.
        item: the name in ``?*name``: each place of the lists that share it has a value of its own.
    """

    name: str | None
    item: str | None = None

    def __str__(self) -> str:
        if self.item is not None:
            return f"?*{self.item}"
        return "..." if self.name is None else f"*{self.name}"


@dataclass(frozen=True)
class Unnamed:
    """A dimension of any size, ``_``.

    Attributes:
        item: the name in ``?name``: each place of the lists that share it has a size of its own.
    """

    item: str | None = None

    def __str__(self) -> str:
        return "_" if self.item is None else f"?{self.item}"


Dim = Fixed | Variadic | Unnamed


@dataclass(frozen=True)
class Shape:
    """The dimensions of a tensor, at most one of them variadic.

    Attributes:
        scalars: the names of the operator's int and sequence arguments, sorted.
    """

    text: str
    scalars: tuple[str, ...] = ()

    @functools.cached_property
    def dims(self) -> tuple[Dim, ...]:
        """The dimensions in order.

        Raises:
            ShapeError: the text is not a shape. For a declaration, `parse` raises the error
                earlier.
        """
        return _parsed(self.text, self.scalars)

    def least_numel(self, scalars: Arguments) -> int:
        """Return the number of elements if all sizes were 1 but those that `scalars` decide."""
        numel = 1
        for dim in self.dims:
            with suppress(KeyError, ZeroDivisionError):
                if isinstance(dim, Fixed):
                    numel *= expressions.evaluate(dim.expression, {}, scalars)
        return numel

    @property
    def variadic(self) -> int | None:
        """The position of the variadic dimension, if there is one."""
        for position, dim in enumerate(self.dims):
            if isinstance(dim, Variadic):
                return position
        return None

    @property
    def rank(self) -> int:
        """The number of dimensions, without the variadic one."""
        return sum(not isinstance(dim, Variadic) for dim in self.dims)

    def axes(self) -> Iterator[tuple[int, Dim]]:
        """Yield each dimension with its axis; after a variadic one, axes count from the end."""
        past = 0
        for position, dim in enumerate(self.dims):
            yield position - past, dim
            past = len(self.dims) if isinstance(dim, Variadic) else past

    def binds(self) -> tuple[str, ...]:
        """Return the names whose sizes a tensor of this shape binds, in order."""
        return bound_by(self.dims)


def bound_by(dims: Iterable[Dim]) -> tuple[str, ...]:
    """Return the names whose sizes a tensor of these dimensions binds, in order."""
    found: list[str] = []
    for dim in dims:
        match dim:
            case Fixed(Name(name)) | Variadic(str(name)) if name not in found:
                found.append(name)
    return tuple(found)


def show_sizes(sizes: Sequence[AnySize]) -> str:
    """Return ``(1, 6, 16)``; a single size as ``(3,)``, as Python writes tuples."""
    inner = ", ".join(str(size) for size in sizes)
    return f"({inner},)" if len(sizes) == 1 else f"({inner})"


class ShapeError(ValueError):
    """Raised for a text that is not a shape; the message says why."""


# These patterns are compiled on first use: declarations of an installed package do not need them.
_NAME = r"[A-Za-z][A-Za-z0-9_]*"
_DOCUMENTED = r"[A-Za-z_]\w*=(.+)"
_UNSUPPORTED = {
    "#": "broadcasting dimensions (#) are not supported: write the dimension's name, and let the "
    "caller expand",
}


def parse(text: str, scalars: Collection[str] = ()) -> Shape:
    """Parse the text of a jaxtyping shape.

    Args:
        text: dimensions separated by spaces (spaces inside parentheses, brackets and braces do not
            separate).
        scalars: the names of the operator's int and sequence arguments.

    Raises:
        ShapeError: the message quotes the wrong dimension.
    """
    shape = Shape(text, tuple(sorted(scalars)))
    _parsed(text, shape.scalars)
    return shape


@functools.lru_cache(256)  # results, and gradient operators, repeat the shapes of arguments
def _parsed(text: str, scalars: tuple[str, ...]) -> tuple[Dim, ...]:
    dims = tuple(_dim(word, scalars) for word in _words(text))
    if sum(isinstance(dim, Variadic) for dim in dims) > 1:
        raise ShapeError("has more than one '*name' or '...'; at most one can be matched")
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
    if "?" in word:
        return _of_items(word)
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


def _of_items(word: str) -> Dim:
    found = re.fullmatch(rf"(\?\*|\*\?|\?)({_NAME})", word)
    if not found:
        raise ShapeError(f"dimension {word!r}: '?' stands before a name alone, as in '?N' or '?*S'")
    return Variadic(None, found[2]) if "*" in found[1] else Unnamed(found[2])
