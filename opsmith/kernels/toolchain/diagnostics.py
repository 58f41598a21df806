"""Turn the output of compilers and linkers into messages for the user."""

from __future__ import annotations

import re
from collections.abc import Iterator

NINJA_STATUS = "[opsmith] "
_NOISE = ("FAILED: ", "ninja: ", NINJA_STATUS)
_STABLE_ONLY = "TORCH_STABLE_ONLY or TORCH_TARGET_VERSION"
#: The messages of GNU's and LLVM's linkers for a function that is declared and used, but not
#: defined.
_UNDEFINED = re.compile(r"undefined (?:reference to|symbol:?) [`']?(.+?)'?$", re.MULTILINE)
#: The beginning of an error or a warning, and lines that lead to one.
_ERROR = re.compile(r"(\S+:\d+:\d+: (?:fatal error|error|warning): )")
_LEADS = re.compile(r"^\S+: In |required (?:from|by)|^In file included|^ +from |^\S+: At global ")


def own_words(output: str) -> str:
    """Return the output of the compiler and the linker, without what Ninja prints around it."""
    kept: list[str] = []
    skip = False
    for line in output.splitlines():
        if skip:  # the command, after "FAILED: "
            skip = False
            continue
        if line.startswith(_NOISE):
            skip = line.startswith("FAILED: ")
            continue
        kept.append(line)
    return "\n".join(_once(kept)).strip()


def _once(lines: list[str]) -> Iterator[str]:
    """Yield a compiler's lines, those of each error once.

    A mistake in a template is an error for each dtype. What leads to an error stands before it,
    and what it refers to behind it.
    """
    seen: set[str] = set()
    before: list[str] = []
    repeated = False
    for line in lines:
        head = _ERROR.match(line)
        if head is not None:
            repeated = head[1] in seen
            seen.add(head[1])
        elif not line.startswith(" ") and ": note: " not in line:
            repeated = False
        if head is None and _LEADS.search(line):
            before.append(line)
        else:
            yield from () if repeated else (*before, line)
            before = []
    yield from before


def compile_error(subject: str, output: str, mistake: str = "") -> str:
    """Return the message of a build that failed.

    Args:
        subject: the subject of the message: the build and its source files.
        output: the output of Ninja.
        mistake: a sentence that explains the mistake, without a full stop; empty if unknown.
    """
    text = own_words(output)
    undefined = _UNDEFINED.search(text)
    verb = "did not link" if undefined or "error: ld returned" in text else "did not compile"
    if not mistake and undefined:
        mistake = (
            f"nothing defines {undefined[1]}, which it uses: define it in the source, or in a "
            "header that the source includes, as a kernel is compiled from one file"
        )
    if not mistake and _STABLE_ONLY in text:
        mistake = (
            "this source includes PyTorch's C++ interface, which changes with every version: use "
            '<opsmith/kernel.h> and torch/headeronly only, or register it with api="torch"'
        )
    return f"{subject} {verb}: {mistake}.\n\n{text}" if mistake else f"{subject} {verb}:\n\n{text}"
