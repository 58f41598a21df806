"""Find out which instruction sets this processor has, and whether compiled code can run here."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from opsmith.errors import ArtifactError

#: The file in which Linux describes the processor.
CPUINFO = Path("/proc/cpuinfo")

#: The instruction sets that -march=native may use, in Linux's spelling: x86, then Arm.
_EXTENSIONS = {
    "flags": (
        r"(abm|adx|aes|amx|avx|bmi|f16c|fma|gfni|lzcnt|movbe|pclmul|popcnt|sha_ni|sse|ssse|vaes|"
        r"vpclmul)\w*"
    ),
    "Features": (
        r"(aes|asimd|atomics|bf16|crc32|dcpo|dgh|fcma|flagm|fp|frint|i8mm|ilrcpc|jscvt|lrcpc|lse|"
        r"mops|pmull|rng|sha|sm3|sm4|sme|sve)\w*"
    ),
}

_V2 = ("popcnt", "sse4_1", "sse4_2", "ssse3")
_V3 = (*_V2, "abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe")
#: The instruction sets of the levels that OPSMITH_ARCH may name; other names are not checked.
_LEVELS = {
    "x86-64-v2": _V2,
    "x86-64-v3": _V3,
    "x86-64-v4": (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"),
}


def architecture() -> str:
    """Return the value of ``-march``: ``OPSMITH_ARCH`` if it is set, else ``"native"``.

    ``OPSMITH_ARCH=generic`` leaves the flag out, for a library that is to run on other machines.
    """
    return os.environ.get("OPSMITH_ARCH", "native").strip() or "generic"


def platform_name() -> str:
    """Return the system and the processor's family, which compiled libraries depend on."""
    return f"{platform.system()}-{platform.machine()}"


def features() -> list[str]:
    """Return the instruction sets of this processor, sorted; empty if they are unknown."""
    for key, words in _listed():
        return sorted({word for word in words if re.fullmatch(_EXTENSIONS[key], word)})
    return []


def needed(chosen: str | None = None) -> list[str]:
    """Return the instruction sets that code may use that is compiled for `chosen`.

    Args:
        chosen: a value of ``-march``; `architecture` by default.
    """
    chosen = chosen or architecture()
    return features() if chosen == "native" else sorted(_LEVELS.get(chosen, ()))


def require(what: str, built_for: str, here: str, needs: Iterable[str], remedy: str) -> None:
    """Refuse compiled code that uses instructions that this processor does not have.

    Args:
        what: the owner of the code, with its verb: ``dist was``.
        built_for: the machine for which the code was compiled.
        here: this machine, in the form of `built_for`.
        needs: the result of `needed` on the machine that compiled the code.
        remedy: the advice that the message gives.

    Raises:
        ArtifactError: naming the missing instruction sets.
    """
    if built_for != here:
        raise ArtifactError(f"{what} compiled for {built_for}, this machine is {here}. {remedy}.")
    lacking_here = lacking(needs)
    if lacking_here:
        raise ArtifactError(
            f"{what} compiled for a processor with {', '.join(lacking_here)}, which this one "
            f"lacks. {remedy}, or with OPSMITH_ARCH set to a level that both processors have, "
            "as in OPSMITH_ARCH=x86-64-v3, or =generic."
        )


def lacking(needs: Iterable[str]) -> list[str]:
    """Return the missing instruction sets, sorted; empty if the processor is unknown."""
    return [word for _, words in _listed() for word in sorted(set(needs).difference(words))]


@cache
def processor() -> str:
    """Return a key for what ``-march=native`` depends on: the architecture and the processor."""
    try:
        first = CPUINFO.read_text().split("\n\n")[0]
    except OSError:
        first = platform.processor()
    telling = ("flags", "Features", "model name", "cpu family", "CPU part")
    kept = [line for line in first.splitlines() if line.startswith(telling)]
    text = "\n".join(kept) or first
    return f"{platform.machine()}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _listed() -> Iterator[tuple[str, list[str]]]:
    """Yield the key and the words of the first processor's line of features, if it is found."""
    try:
        lines = CPUINFO.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        key, colon, rest = line.partition(":")
        if colon and key.strip() in _EXTENSIONS:
            yield key.strip(), rest.split()
            return
