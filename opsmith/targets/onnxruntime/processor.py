"""What a library compiled for this very processor asks of the one that it runs on."""

from __future__ import annotations

from opsmith.kernels.toolchain import architecture

_PREFIXES = (
    "abm aes amx asimd avx bmi f16c fma fp16 gfni lzcnt movbe pclmul popcnt sha sse sve vaes "
    "vpclmul xsave"
).split()


def available() -> set[str]:
    """The instruction sets of this processor, as Linux names them; empty where it does not say."""
    try:
        with open("/proc/cpuinfo") as file:
            text = file.read(16384)
    except OSError:
        return set()
    for line in text.splitlines():
        if line.startswith(("flags", "Features")):
            words = line.partition(":")[2].split()
            return {word for word in words if word.startswith(tuple(_PREFIXES))}
    return set()


def features() -> list[str]:
    """What a library that is built now may use: all there is, unless told otherwise."""
    # OPSMITH_ARCH names a level that the user answers for.
    return sorted(available()) if architecture() == "native" else []
