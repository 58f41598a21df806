"""What each failure's code means, what causes it, and what to do: the one place that says so.

The pages in this folder are the catalogue. ``opsmith explain`` shows one entry of them, and
``python -m opsmith.checks.report.failure_codes`` writes ``docs/reference/failures.md``, with all
of them.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from opsmith.errors import OpsmithError

_PAGES = ("values", "sizes", "calls", "memory", "cuda", "gradients", "runtimes")
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
    """What one code stands for. Every text is Markdown.

    Attributes:
        code: ``OPS-AREA-WHAT``; it keeps its meaning from version to version.
        family: the heading that it stands under.
        title: what is wrong, in one sentence.
        cause: where it comes from.
        example: a small operator that has it, and what is said of that.
        remedy: what to do.
    """

    code: str
    family: str
    title: str
    cause: str
    example: str
    remedy: str


@functools.cache
def catalogue() -> Mapping[str, Explanation]:
    """Every explanation by its code, in the order of the pages."""
    found: dict[str, Explanation] = {}
    for name in _PAGES:
        head, *entries = re.split(r"^## ", page(name), flags=re.MULTILINE)
        family = head.splitlines()[0].removeprefix("# ")
        for entry in entries:
            code, _, body = entry.partition("\n")
            parts = _ENTRY.fullmatch(body.strip())
            if parts is None or code in found:
                raise ValueError(f"{name}.md: {code} is not an entry, or there are two")
            words = {part: text.strip() for part, text in parts.groupdict().items()}
            found[code] = Explanation(code, family, **words)
    return found


def page(name: str) -> str:
    """One page of the catalogue."""
    return Path(__file__).with_name(f"{name}.md").read_text(encoding="utf-8")


def explanation(code: str) -> Explanation:
    """What a code stands for, written in any case, with or without ``OPS-``.

    Raises:
        UnknownCodeError: there is no such code; names the nearest ones.
    """
    known = catalogue()
    asked = code.strip().upper().replace("_", "-")
    for name in (asked, f"OPS-{asked}"):
        if name in known:
            return known[name]
    near = [name for name in known if name.startswith((asked, f"OPS-{asked}-"))]
    near = near or difflib.get_close_matches(f"OPS-{asked.removeprefix('OPS-')}", known, 3)
    hint = f"is it {' or '.join(near)}?" if near else "`opsmith explain` lists all"
    raise UnknownCodeError(f"there is no code {code!r}; {hint}")
