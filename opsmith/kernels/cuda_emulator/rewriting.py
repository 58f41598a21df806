"""Rewrite launches (``<<<…>>>``), shared memory and inline PTX to C++, and keep line numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from opsmith.kernels.codegen.cpp_names import quote
from opsmith.kernels.cuda_emulator.declarations import (
    Edit,
    UnreadableError,
    closing,
    declared_edits,
    masked,
)
from opsmith.kernels.cuda_emulator.inline_ptx import HEADER, inline_ptx

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
_OPEN, _CLOSE = "([{", ")]}"


@dataclass
class Rewritten:
    """A source and its own headers, rewritten to C++.

    Attributes:
        files: texts by file name, the source first; without headers that need no change.
        read: all files that were read, which decide the result.
        unreadable: why the body of a macro cannot be rewritten, by the macro's name.
    """

    files: dict[str, str] = field(default_factory=dict)
    read: list[Path] = field(default_factory=list)
    unreadable: dict[str, UnreadableError] = field(default_factory=dict)


def rewrite(source: Path, name: str) -> Rewritten:
    """Rewrite a source and its own headers.

    Args:
        source: the ``.cu`` file.
        name: the name of the C++ file.

    Raises:
        UnreadableError: the message names the line.
    """
    result = Rewritten()
    _file(source, name, result, {})
    # Headers of macros for all of PTX are common, and a macro that nobody uses does no harm.
    for macro, error in result.unreadable.items():
        if any(_uses(text, macro) for text in result.files.values()):
            raise error
    return result


def _uses(text: str, macro: str) -> bool:
    used = re.compile(rf"^(?![ \t]*#[ \t]*\w+[ \t]+{macro}\b).*\b{macro}\b", re.MULTILINE)
    return used.search(masked(text)) is not None


def own_headers(path: Path, text: str) -> list[tuple[re.Match[str], Path]]:
    """Return the includes in quotes whose files exist relative to `path`."""
    found = []
    for match in _INCLUDE.finditer(text):
        header = (path.parent / match[1]).resolve()
        if header.is_file():
            found.append((match, header))
    return found


def _file(path: Path, name: str, result: Rewritten, named: dict[Path, str]) -> None:
    named[path] = name
    result.read.append(path)
    result.files[name] = ""  # the source comes first
    text = path.read_text(errors="replace")
    code = masked(text)
    edits = _edits(text, code, path)
    ptx = inline_ptx(text, code, path)
    result.unreadable |= ptx.in_macros
    for match, header in own_headers(path, text):
        if header not in named:
            own = f"{Path(name).stem}_{len(named)}_{header.name}"
            _file(header, own, result, named)
        edits.append((match.start(1), match.end(1), named[header]))
    where = str(path).replace("\\", "\\\\").replace('"', '\\"')
    before = f"#include <{HEADER}>\n" if ptx.edits else ""
    result.files[name] = f'{before}#line 1 "{where}"\n{_applied(text, [*edits, *ptx.edits])}'


def _applied(text: str, edits: list[Edit]) -> str:
    parts, at = [], 0
    for start, end, replacement in sorted(edits):
        removed = text[start:end]
        # Keep the number of lines, in a macro too.
        parts += [text[at:start], replacement]
        parts += ["\\\n" if line.endswith("\\") else "\n" for line in removed.split("\n")[:-1]]
        at = end
    return "".join([*parts, text[at:]])


def _edits(text: str, code: str, path: Path) -> list[Edit]:
    edits = [(m.start(), m.end(), "") for m in re.finditer(r"\b__noinline__\b", code)]
    edits += _launches(text, code, path)
    return edits + declared_edits(text, code, path)


# --- launches ------------------------------------------------------------------------------------


def _launches(text: str, code: str, path: Path) -> list[Edit]:
    edits: list[Edit] = []
    for match in re.finditer(r"(?<!<)<<<(?!<)", code):
        line = text.count("\n", 0, match.start()) + 1
        start = _kernel_start(code, match.start())
        kernel = " ".join(text[start : match.start()].replace("\\\n", " ").split())
        if not kernel:
            raise UnreadableError("'<<<' without the name of a kernel before it", path, line)
        end = _configuration_end(code, match.end())
        call = re.compile(r"(?:\s|\\\n)*\(").match(code, end + 3) if end >= 0 else None
        if call is None:
            raise UnreadableError(
                "a launch whose '>>>' cannot be told from the end of template arguments; "
                "write opsmith::launch(...) instead",
                path,
                line,
            )
        following = re.compile(r"(?:\s|\\\n)*").match(code, call.end())
        empty = following is not None and code[following.end() : following.end() + 1] == ")"
        edits.append((start, match.end(), "::opsmith::emulated::Configured("))
        address = kernel if _is_one_function(kernel, code) else "nullptr"
        # The device may not read a variable of the host's that holds the kernel.
        held = _is_variable(kernel, code[:start])
        capture, called = (
            (f", opsmith_kernel = {kernel}", "opsmith_kernel") if held else ("", kernel)
        )
        run = (
            f").run({quote(kernel)}, {address}, [&{capture}](auto... opsmith_arguments) "
            f"{{ {called}(opsmith_arguments...); }}{'' if empty else ', '}"
        )
        edits.append((end, call.end(), run))
        # The kernel's parameters are not known where an argument passes on the way to them.
        close = closing(code, call.end())
        nulls = re.compile(r"\bNULL\b").finditer(code, call.end(), max(close, call.end()))
        edits += [(null.start(), null.end(), "nullptr") for null in nulls]
    return edits


_KERNEL = re.compile(
    r"(?:\btemplate\s*<(?P<parameters>[^<>;{}()]*)>\s*)?(?:\b(?:static|inline)\b\s*)*\b__global__\b"
    r"(?:\s+|__launch_bounds__\s*\([^;{}]*?\)|\bvoid\b)*(?P<name>[A-Za-z_]\w*)\s*\("
)


def _is_one_function(kernel: str, code: str) -> bool:
    """Return whether an expression surely names one function of this file, whose address is taken.

    Neither an overloaded function nor a template whose arguments are deduced has an address.
    """
    words = re.fullmatch(r"([A-Za-z_]\w*)(?:\s*<([^<>()]*)>)?", kernel)
    if words is None:
        return False
    found = {m["parameters"] for m in _KERNEL.finditer(code) if m["name"] == words[1]}
    defined = re.findall(rf"\b{words[1]}\s*\([^;{{}}]*\)\s*\{{", code)
    if len(found) != 1 or len(defined) > 1:
        return False
    (parameters,) = found
    if parameters is None or words[2] is None:
        return parameters is None and words[2] is None
    return "..." not in parameters and parameters.count(",") == words[2].count(",")


def _is_variable(kernel: str, before: str) -> bool:
    """Return whether an expression surely names a variable, by the code before it."""
    # A kernel cannot be a member of a class, so a member holds a pointer to one.
    if kernel.endswith("]") or re.search(r"(?:\.|->)\s*\w+\Z", kernel):
        return True
    return (
        re.fullmatch(r"[A-Za-z_]\w*", kernel) is not None
        and re.search(rf"\b{kernel}\s*(?:=(?!=)|\)\s*\()", before) is not None
    )


def _configuration_end(code: str, at: int) -> int:
    """Return the position of the ``>>>`` that ends the configuration from `at`; -1 without one."""
    depth = 0
    while at < len(code):
        character = code[at]
        if character in _OPEN:
            depth += 1
        elif character in _CLOSE:
            depth -= 1
            if depth < 0:
                return -1
        elif character == ";":
            return -1
        elif depth == 0 and code.startswith(">>>", at):
            return -1 if code.startswith(">>>>", at) else at
        at += 1
    return -1


def _kernel_start(code: str, end: int) -> int:
    """Return the position of the expression that names a kernel and ends before `end`."""
    at = _without_space(code, end)
    while True:
        if at > 0 and code[at - 1] == ">":
            at = _without_space(code, _angle_start(code, at))
        if at > 0 and code[at - 1] == ")":
            return _bracket_start(code, at)
        while at > 0 and code[at - 1] == "]":
            at = _without_space(code, _bracket_start(code, at))
        word = re.search(r"\w+\Z", code[:at])
        if word is None:
            return at
        at = _pasted_start(code, word.start())
        if code[at].isdigit():
            return word.end()
        before = _without_space(code, at)
        if re.search(r"\btemplate\Z", code[:before]):
            before = _without_space(code, before - len("template"))
        for joint in ("::", "->", "."):
            if code[:before].endswith(joint):
                at = _without_space(code, before - len(joint))
                break
        else:
            return at
        if joint == "::" and not re.search(r"[\w>]\Z", code[:at]):
            return before - 2


def _pasted_start(code: str, at: int) -> int:
    """Return the position of the first part of a name that a macro pastes together by ``##``."""
    while code[: (before := _without_space(code, at))].endswith("##"):
        part = re.search(r"\w+\Z", code[: _without_space(code, before - 2)])
        if part is None:
            break
        at = part.start()
    return at


def _without_space(code: str, end: int) -> int:
    # No regular expression: comments are long runs of blanks here.
    while end > 0 and (code[end - 1].isspace() or code[end - 1 : end + 1] == "\\\n"):
        end -= 1
    return end


def _angle_start(code: str, end: int) -> int:
    depth, at = 0, end
    while at > 0:
        at -= 1
        character = code[at]
        if character in _CLOSE:
            at = _bracket_start(code, at + 1)
        elif character == ">" and code[at - 1 : at] != "-":
            depth += 1
        elif character == "<":
            depth -= 1
            if depth == 0:
                return at
        elif character in ";{":
            break
    return end


def _bracket_start(code: str, end: int) -> int:
    depth, at = 0, end
    while at > 0:
        at -= 1
        if code[at] in _CLOSE:
            depth += 1
        elif code[at] in _OPEN:
            depth -= 1
            if depth == 0:
                return at
    return end
