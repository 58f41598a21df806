"""Docstrings in Google's style, as Markdown."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

_SECTION = re.compile(
    r"^(Args|Arguments|Attributes|Returns|Yields|Raises|Example|Examples):\n", re.MULTILINE
)
_TITLES = {"Args": "Arguments", "Example": "Example", "Examples": "Examples"}


def described(thing: Any) -> str:
    """The docstring of a name, as Markdown; the fields of a dataclass without one are listed."""
    text = inspect.getdoc(thing) or ""
    lead, *sections = _SECTION.split(text)
    parts = [_prose(lead)]
    for kind, body in zip(sections[::2], sections[1::2], strict=True):
        parts.append(_section(kind, inspect.cleandoc("\n" + body)))
    if dataclasses.is_dataclass(thing) and "Attributes" not in sections[::2]:
        fields = [f"- `{field.name}`: `{field.type}`" for field in dataclasses.fields(thing)]
        parts.append("**Attributes**\n\n" + "\n".join(fields) + "\n")
    return "\n".join(part for part in parts if part)


def _section(kind: str, body: str) -> str:
    title = f"**{_TITLES.get(kind, kind)}**\n\n"
    if kind.startswith("Example"):
        return title + f"```pycon\n{body.rstrip()}\n```\n"
    if kind in ("Returns", "Yields"):
        return title + _prose(body)
    return title + "\n".join(_items(body)) + "\n"


def _items(body: str) -> list[str]:
    items: list[str] = []
    for line in body.splitlines():
        match = re.match(r"(\*{0,2}[\w.]+(?:, \*{0,2}[\w.]+)*): (.*)", line)
        if match and not line.startswith(" "):
            items.append(f"- `{match[1]}`: {_inline(match[2])}")
        elif items:
            items[-1] += " " + _inline(line.strip())
        elif line.strip():
            items.append(f"- {_inline(line.strip())}")
    return items


def _prose(text: str) -> str:
    """Paragraphs; what is indented after ``::`` is code."""
    out: list[str] = []
    # A listing may hold empty lines: what follows is indented too.
    for block in re.split(r"\n\s*\n(?!    )", text.strip()):
        words, mark, code = block.partition("::\n")
        if mark and code.strip():
            shown = inspect.cleandoc("\n" + code)
            out += [_inline(words) + ":" if words.strip() else "", f"```py\n{shown}\n```"]
        elif block.startswith(">>>"):
            out.append(f"```pycon\n{block}\n```")
        else:
            out.append(_inline(block))
    return "\n\n".join(part for part in out if part) + "\n"


def _inline(text: str) -> str:
    """Double backquotes are code in Markdown as well; an angle bracket would be a tag."""
    parts = re.split(r"(``.+?``|`[^`\n]+`)", text)
    return "".join(part if at % 2 else part.replace("<", "&lt;") for at, part in enumerate(parts))
