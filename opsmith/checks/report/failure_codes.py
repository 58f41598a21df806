"""The catalogue of failure codes: meaning, cause, example and remedy of each.

``docs/reference/failures.md`` is the only source of the catalogue. ``failures.md`` beside this file
is a link to it, which a wheel holds as a copy.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from opsmith.errors import OpsmithError

_ENTRY = re.compile(
    r"(?P<title>\S.*?)\n\n"
    r"\*\*Cause\.\*\* (?P<cause>.+?)\n\n"
    r"\*\*Example\.\*\*(?P<example>.+?)\n\n"
    r"\*\*Remedy\.\*\* (?P<remedy>.+)",
    re.DOTALL,
)


class UnknownCodeError(OpsmithError):
    """No failure has this code."""

    exit_code = 2


@dataclass(frozen=True)
class Explanation:
    """The explanation of one failure code. Every text is Markdown.

    Attributes:
        code: ``OPS-AREA-WHAT``; the meaning of a code never changes between versions.
        family: the heading above it.
        title: the problem in one sentence.
        example: a small operator with this failure, and the message about it.
        remedy: the way to mend it.
    """

    code: str
    family: str
    title: str
    cause: str
    example: str
    remedy: str


@functools.cache
def catalogue() -> Mapping[str, Explanation]:
    """Return all explanations by code, in the order of the page."""
    found: dict[str, Explanation] = {}
    _, *families = re.split(r"^## ", page(), flags=re.MULTILINE)
    for section in families:
        family, *entries = re.split(r"^### ", section, flags=re.MULTILINE)
        for entry in entries:
            code, _, body = entry.partition("\n")
            parts = _ENTRY.fullmatch(body.strip())
            if parts is None or code in found:
                raise ValueError(f"failures.md: {code} is not an entry, or there are two")
            words = {part: text.strip() for part, text in parts.groupdict().items()}
            found[code] = Explanation(code, family.splitlines()[0], **words)
    return found


def page() -> str:
    """Return the text of the page of all entries."""
    return Path(__file__).with_name("failures.md").read_text(encoding="utf-8")


def explanation(code: str) -> Explanation:
    """Return the explanation of a code, written in any case, with or without ``OPS-``.

    Raises:
        UnknownCodeError: the code does not exist; the message names the nearest ones.
    """
    known = catalogue()
    asked = code.strip().upper().replace("_", "-")
    for name in (asked, f"OPS-{asked}"):
        if name in known:
            return known[name]
    near = [name for name in known if name.startswith((asked, f"OPS-{asked}-"))]
    words = {word for name in known for word in name.split("-")[1:]}
    wanted = asked.removeprefix("OPS-").split("-")
    close = {one for word in wanted for one in difflib.get_close_matches(word, words, 1, 0.75)}
    alike = sorted(known, key=lambda name: -len(close.intersection(name.split("-"))))
    near = near or [name for name in alike if close and close.issubset(name.split("-"))][:3]
    near = near or [name for name in alike if close.intersection(name.split("-"))][:3]
    hint = f"is it {' or '.join(near)}?" if near else "`opsmith explain` lists all"
    raise UnknownCodeError(f"there is no code {code!r}; {hint}")
