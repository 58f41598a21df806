"""Add options to a command that come from targets, and from the checks of targets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import typer
from typer.core import TyperCommand

from opsmith.errors import OptionError
from opsmith.untyped import Untyped

_FOUND = "opsmith.extra"

Found = list[tuple[str, str | None]]
"""Options by name, in the order given, with their texts; `None` for an option without a value."""


class ExtraOptions(TyperCommand, ABC):
    """A command with further options, which are known only after torch is imported."""

    @abstractmethod
    def extra(self) -> Mapping[str, bool]:
        """Return the names of the options, and whether each takes a value."""

    def parse_args(self, ctx: Untyped, args: list[str]) -> list[str]:
        """Take the extra options out, and leave the rest to the parser."""
        own = {text for param in self.params for text in (*param.opts, *param.secondary_opts)}
        if any(_name(arg) is not None and arg.partition("=")[0] not in own for arg in args):
            args, ctx.meta[_FOUND] = take(args, self.extra(), own)
        return super().parse_args(ctx, args)


def found(ctx: typer.Context) -> Found:
    """Return the extra options that the command was given."""
    return list(ctx.meta.get(_FOUND, []))


def take(args: Sequence[str], extra: Mapping[str, bool], own: set[str]) -> tuple[list[str], Found]:
    """Split a command line into the command's own words and extra options.

    Args:
        args: the command line.
        extra: the names of extra options, and whether each takes a value.
        own: the command's own options, which have precedence.

    Raises:
        OptionError: an extra option is missing its value, or has a value and takes none.
    """
    rest: list[str] = []
    taken: Found = []
    words = iter(args)
    for word in words:
        name = _name(word)
        if word == "--":
            rest += [word, *words]
        elif name is None or name not in extra or word.partition("=")[0] in own:
            rest.append(word)
        elif "=" in word:
            if not extra[name]:
                raise OptionError(f"{word.partition('=')[0]} takes no value")
            taken.append((name, word.partition("=")[2]))
        else:
            value = next(words, None) if extra[name] else None
            if extra[name] and (value is None or value.startswith("--")):
                raise OptionError(f"{word} needs a value")
            taken.append((name, value))
    return rest, taken


def _name(word: str) -> str | None:
    """Return an option's name as a Python identifier; `None` for a word that is no long option."""
    if not word.startswith("--") or word == "--":
        return None
    return word[2:].partition("=")[0].replace("-", "_")
