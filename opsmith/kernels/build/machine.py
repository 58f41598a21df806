"""This machine's processor: what code compiled here uses, and whether code of elsewhere runs."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from opsmith.errors import ArtifactError

_CPUINFO = Path("/proc/cpuinfo")

#: What a compiler told -march=native may use, as Linux spells it: x86, then Arm.
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
#: What the levels that OPSMITH_ARCH may name allow; for other names the user answers.
_LEVELS = {
    "x86-64-v2": _V2,
    "x86-64-v3": _V3,
    "x86-64-v4": (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"),
}


def architecture() -> str:
    """The value of ``-march``, from ``OPSMITH_ARCH``; ``"native"`` unless it says otherwise.

    ``OPSMITH_ARCH=generic`` leaves the flag out, for a library that is to run on other machines.
    """
    return os.environ.get("OPSMITH_ARCH", "native").strip() or "generic"


def platform_name() -> str:
    """Where compiled libraries run: the system and the processor's family."""
    return f"{platform.system()}-{platform.machine()}"


def features(cpuinfo: Path = _CPUINFO) -> list[str]:
    """The instruction sets of this processor, sorted; none where the system does not say."""
    for key, words in _listed(cpuinfo):
        return sorted({word for word in words if re.fullmatch(_EXTENSIONS[key], word)})
    return []


def needed(chosen: str | None = None) -> list[str]:
    """The instruction sets that code may use which is compiled now, or for `chosen`."""
    chosen = chosen or architecture()
    return features() if chosen == "native" else sorted(_LEVELS.get(chosen, ()))


def require(
    what: str,
    built_for: str,
    here: str,
    needs: Iterable[str],
    remedy: str,
    cpuinfo: Path = _CPUINFO,
) -> None:
    """Refuse compiled code that this processor would die of.

    Args:
        what: what holds the code, with its verb: ``dist was``.
        built_for: the machine for which it was compiled.
        here: this one, as `built_for` would name it.
        needs: what `needed` gave there.
        remedy: what to do.
        cpuinfo: where Linux describes the processor.

    Raises:
        ArtifactError: naming what this machine lacks.
    """
    if built_for != here:
        raise ArtifactError(f"{what} compiled for {built_for}, this machine is {here}. {remedy}.")
    lacking_here = lacking(needs, cpuinfo)
    if lacking_here:
        raise ArtifactError(
            f"{what} compiled for a processor with {', '.join(lacking_here)}, which this one "
            f"lacks. {remedy}, or with OPSMITH_ARCH set to a level that both processors have, "
            "as in OPSMITH_ARCH=x86-64-v3, or =generic."
        )


def lacking(needs: Iterable[str], cpuinfo: Path = _CPUINFO) -> list[str]:
    """Which instruction sets this processor lacks, sorted; none where the system does not say."""
    return [word for _, words in _listed(cpuinfo) for word in sorted(set(needs).difference(words))]


@cache
def processor() -> str:
    """What ``-march=native`` depends on: the architecture and the processor's features."""
    try:
        first = _CPUINFO.read_text().split("\n\n")[0]
    except OSError:
        first = platform.processor()
    telling = ("flags", "Features", "model name", "cpu family", "CPU part")
    kept = [line for line in first.splitlines() if line.startswith(telling)]
    text = "\n".join(kept) or first
    return f"{platform.machine()}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _listed(cpuinfo: Path) -> Iterator[tuple[str, list[str]]]:
    """The first processor's line of features, by its key, if there is one."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        key, colon, rest = line.partition(":")
        if colon and key.strip() in _EXTENSIONS:
            yield key.strip(), rest.split()
            return
