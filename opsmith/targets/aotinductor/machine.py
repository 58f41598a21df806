"""Which processor compiled code is for, and whether this one can run it."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opsmith.errors import ArtifactError
from opsmith.kernels import toolchain

# What a compiler told -march=native may use, as /proc/cpuinfo spells it.
_EXTENSIONS = re.compile(
    r"(sse|ssse|avx|amx|fma|f16c|bmi|abm|adx|aes|pclmulqdq|vaes|vpclmul|gfni|sha_ni|movbe|popcnt)"
    r"\w*"
)
_V2 = ("popcnt", "sse4_1", "sse4_2", "ssse3")
_V3 = (*_V2, "abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe")
_LEVELS = {
    "x86-64-v2": _V2,
    "x86-64-v3": _V3,
    "x86-64-v4": (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"),
}
_VECTOR_BITS = {"x86-64-v3": 256, "x86-64-v4": 512}


def features_here(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """The processor's instruction set extensions; none where the system does not say."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return frozenset()
    flags = next((line for line in lines if line.startswith("flags")), "")
    return frozenset(word for word in flags.split() if _EXTENSIONS.fullmatch(word))


def describe() -> dict[str, Any]:
    """The machine that an export made here needs, for the manifest."""
    chosen = toolchain.architecture()
    needed = features_here() if chosen == "native" else _LEVELS.get(chosen, ())
    return {"architecture": platform.machine(), "march": chosen, "features": sorted(needed)}


def inductor_settings() -> dict[str, Any]:
    """What inductor is told so that it compiles for the processor that kernels are built for."""
    from torch._inductor import config

    chosen = toolchain.architecture()
    if chosen == "native":
        return {}
    settings: dict[str, Any] = {"cpp.simdlen": _VECTOR_BITS.get(chosen, 1)}
    if hasattr(config.cpp, "march"):
        settings["cpp.march"] = "" if chosen == "generic" else chosen
    return settings


def check(facts: Mapping[str, Any], where: Path) -> None:
    """Refuse code that this processor would die of.

    Args:
        facts: what `describe` said where the artifact was made.
        where: the artifact, for the message.

    Raises:
        ArtifactError: naming what this machine lacks.
    """
    wanted, here = facts["architecture"], platform.machine()
    if wanted != here:
        raise ArtifactError(
            f"{where} was compiled for {wanted}, this machine is {here}. Export the model on a "
            "machine like this one."
        )
    features = features_here()
    missing = [name for name in facts["features"] if name not in features]
    if features and missing:
        raise ArtifactError(
            f"{where} was compiled for a processor with {', '.join(missing)}, which this one "
            "lacks. Export the model on a machine like this one, or with OPSMITH_ARCH set to an "
            "older processor."
        )
