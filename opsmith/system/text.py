"""Lay out text for people: wrap it, or show its beginning."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable


def beginning(lines: Iterable[str], most: int = 12) -> str:
    """Join the first lines of what another program said that are not empty, and count the rest."""
    said = [line for line in lines if line.strip()]
    more = [f"({len(said) - most} more lines)"] if len(said) > most else []
    return "\n".join([*said[:most], *more])


def wrapped(text: str, width: int) -> str:
    """Wrap text at words, behind its indentation; leave commands whole, since they are copied.

    Args:
        width: the width of a line in characters.
    """
    return "\n".join(
        line
        if re.match(r" +(repeat: )?(opsmith|pip) ", line)
        else textwrap.fill(
            line,
            width,
            subsequent_indent=" " * (len(line) - len(line.lstrip())),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in text.split("\n")
    )
