"""The page on the C++ headers: their public declarations with their comments, without bodies."""

from __future__ import annotations

import re

#: What the sources of kernels include, in the order in which one meets it.
HEADERS = (
    "kernel.h",
    "context.h",
    "tensor.h",
    "math.h",
    "vec.h",
    "philox.h",
    "cuda.h",
    "ascendc.h",
)
_OPENS = re.compile(r"\b(?:namespace|class|struct|union|enum)\b[^;()=]*$")

_HEAD = """# The C++ headers

What a kernel's source may use. `<opsmith/kernel.h>` includes all but those of devices
and that of random numbers; what is in `opsmith::detail` may change.
[Kernels in C++](kernels.md) says how these are used.
"""


def page() -> str:
    """The page's Markdown."""
    from opsmith.kernels import INCLUDE

    parts = [_HEAD]
    for name in HEADERS:
        text = (INCLUDE / "opsmith" / name).read_text(encoding="utf-8")
        prose, rest = _lead(text)
        parts.append(f"## `<opsmith/{name}>` {{ #{name.replace('.', '-')} }}\n\n{prose}\n")
        parts.append(f"```cpp\n{declarations(rest)}\n```\n")
    return "\n".join(parts)


def _lead(text: str) -> tuple[str, str]:
    """The comment at the head, as Markdown, and what follows it."""
    lines = text.splitlines()
    count = next(at for at, line in enumerate(lines) if not line.startswith("//"))
    prose: list[str] = []
    for line in (line.removeprefix("//") for line in lines[:count]):
        prose.append(line.removeprefix(" "))
    blocks = re.split(r"\n\n", "\n".join(prose))
    shown = [
        "```cpp\n" + re.sub(r"^    ", "", block, flags=re.MULTILINE) + "\n```"
        if block.startswith("    ")
        else block
        for block in blocks
    ]
    # A listing of several paragraphs is one.
    return "\n\n".join(shown).replace("\n```\n\n```cpp\n", "\n\n"), "\n".join(lines[count:])


def declarations(text: str) -> str:
    """A header without includes, bodies of functions, private members and `detail`."""
    text = _one_branch(text)
    text = re.sub(r"^#\s*define .*?(?<!\\)\n", _macro, text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^#(?!define).*\n", "", text, flags=re.MULTILINE)
    text = re.sub(
        r"^OPSMITH_FUNCTION\((\w+)\)", r"template <typename T>\nT \1(T value);", text, flags=re.M
    )
    text = _without_bodies(text.replace("OPSMITH_HOST_DEVICE ", ""))
    text = re.sub(r"^( *)(?:private|protected):.*?(?=^\1?\};)", "", text, flags=re.M | re.S)
    text = re.sub(r"^namespace detail \{.*?^\}  // namespace detail\n", "", text, flags=re.M | re.S)
    text = re.sub(r"\n{2,}(?=\};)", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _one_branch(text: str) -> str:
    """What everybody reads: the second branch of a condition, for the first is an emulation's."""
    kept: list[str] = []
    begins: list[int] = []
    for line in text.splitlines():
        if line.startswith("#if"):
            begins.append(len(kept))
        elif line.startswith("#else"):
            del kept[begins[-1] :]
        elif line.startswith("#endif"):
            begins.pop()
        else:
            kept.append(line)
    return "\n".join(kept) + "\n"


def _macro(match: re.Match[str]) -> str:
    first = match[0].splitlines()[0].rstrip("\\ ")
    name = re.match(r"#\s*define (\w+(?:\([^)]*\))?)", first)
    hidden = name is None or re.search(r"_\(|OPSMITH_(?:RUN|JOIN|EXPORT|FUNCTION|HOST)", name[1])
    return "" if hidden or name is None else f"#define {name[1]}\n"


def _without_bodies(text: str) -> str:
    out: list[str] = []
    at = start = 0
    while at < len(text):
        if text.startswith("//", at):
            at = (text + "\n").index("\n", at)
            continue
        if text[at] == "{":
            before = re.sub(r"//.*", "", text[start:at])
            if not _OPENS.search(re.split(r"[;}]", before)[-1]):
                end = _closing(text, at)
                initialised = re.search(r"=\s*$|\w\s*$", before) and text[end + 1 :].startswith(";")
                out.append(re.sub(r"\s*$", "", text[start:at]))
                if not initialised:
                    out.append(";")
                at = start = end + 1
                continue
        at += 1
    out.append(text[start:])
    # A constructor's initialisers are part of its body.
    return re.sub(r"(\))\s*\n?\s*: \w+_\([^;]*;", r"\1;", "".join(out))


def _closing(text: str, at: int) -> int:
    depth = 0
    while True:
        if text.startswith("//", at):
            at = text.index("\n", at)
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return at
        at += 1
