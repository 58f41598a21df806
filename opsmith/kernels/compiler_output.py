"""What compilers and linkers say, as the user reads it."""

from __future__ import annotations

import re

NINJA_STATUS = "[opsmith] "
_NOISE = ("FAILED: ", "ninja: ", NINJA_STATUS)
_IN_MACRO = "macro 'OPSMITH_KERNEL'"
#: What GCC and clang say where something else stands than a type.
_NO_TYPE = ("expected a type, got", "template type parameter must be a type")
_STABLE_ONLY = "TORCH_STABLE_ONLY or TORCH_TARGET_VERSION"


def own_words(output: str) -> str:
    """What the compiler and the linker said, without what Ninja says around it."""
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
    return "\n".join(kept).strip()


def compile_error(subject: str, output: str) -> str:
    """The message of a build that failed.

    Args:
        subject: what was built, from which files.
        output: what Ninja printed.
    """
    text = own_words(output)
    missing = re.findall(r"undefined (?:reference to|symbol:?) [`']?(opsmith_kernel__\w+)", text)
    if missing:
        _, namespace, name, device = missing[0].split("__", 3)
        text = (
            f"It has no line OPSMITH_KERNEL({namespace}, {name}, {device}, …), or that line names "
            f"something else.\n\n{text}"
        )
    other = re.search(r"fatal error: (\w+)\.h: No such file", text) or re.search(
        r"fatal error: '(\w+)\.h' file not found", text
    )
    if other:
        text += (
            f"\n\nIf {other[1]} is another operator: this source has the headers of the operators "
            f"that it is registered for when it is built. Register it for {other[1]} too, with "
            "register_kernel(…, source=…), before any of them is called."
        )
    if _IN_MACRO in text and any(words in text for words in _NO_TYPE):
        text += (
            "\n\nAfter the device, OPSMITH_KERNEL takes the types of the generic dtype that the "
            "kernel is for, as in OPSMITH_KERNEL(my, op, cpu, float, double). The function is "
            "found by the operator's name."
        )
    if _STABLE_ONLY in text:
        text += (
            "\n\nThis source includes PyTorch's C++ interface, which changes with every version. "
            'Use <opsmith/kernel.h> and torch/headeronly only, or register it with api="torch".'
        )
    verb = "did not link" if missing or "error: ld returned" in text else "did not compile"
    return f"{subject} {verb}:\n\n{text}"
