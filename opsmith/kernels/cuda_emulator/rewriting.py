"""Rewrite launches (``<<<…>>>``) and shared memory of CUDA to C++, and keep line numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from opsmith.kernels.codegen.cpp_names import quote

_SKIPPED = re.compile(
    r'//(?:\\\n|[^\n])*|/\*.*?\*/|R"([^()\\\s]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)
_SHARED = re.compile(r"\b__shared__\b")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
_BEFORE_SHARED = re.compile(
    r"(?:\b(?:extern|static|volatile|const)\b|\b__align__\s*\([^()]*\)|\balignas\s*\([^()]*\)|\s)*\Z"
)
_ALIGNED = re.compile(r"\b(?:__align__|alignas)\s*\([^()]*\)")
_WORDS = re.compile(r"\b(?:extern|static)\b")
_OPEN, _CLOSE = "([{", ")]}"


class UnreadableError(Exception):
    """Raised for code that cannot be rewritten.

    Attributes:
        path: the file.
        line: the number of the line, from 1.
    """

    def __init__(self, message: str, path: Path, line: int) -> None:
        super().__init__(message)
        self.path = path
        self.line = line


def masked(text: str) -> str:
    """Return the text with blanks for comments and literals, and all else in its place."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    return _SKIPPED.sub(blank, text)


@dataclass
class Rewritten:
    """A source and its own headers, rewritten to C++.

    Attributes:
        files: texts by file name, the source first; without headers that need no change.
        read: all files that were read, which decide the result.
    """

    files: dict[str, str] = field(default_factory=dict)
    read: list[Path] = field(default_factory=list)


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
    return result


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
    edits = _edits(text, path)
    for match, header in own_headers(path, text):
        if header not in named:
            own = f"{Path(name).stem}_{len(named)}_{header.name}"
            _file(header, own, result, named)
        edits.append((match.start(1), match.end(1), named[header]))
    where = str(path).replace("\\", "\\\\").replace('"', '\\"')
    result.files[name] = f'#line 1 "{where}"\n{_applied(text, edits)}'


Edit = tuple[int, int, str]


def _applied(text: str, edits: list[Edit]) -> str:
    parts, at = [], 0
    for start, end, replacement in sorted(edits):
        removed = text[start:end]
        # Keep the number of lines, in a macro too.
        parts += [text[at:start], replacement]
        parts += ["\\\n" if line.endswith("\\") else "\n" for line in removed.split("\n")[:-1]]
        at = end
    return "".join([*parts, text[at:]])


def _edits(text: str, path: Path) -> list[Edit]:
    code = masked(text)
    edits = [(m.start(), m.end(), "") for m in re.finditer(r"\b__noinline__\b", code)]
    edits += _launches(text, code, path)
    for match in _SHARED.finditer(code):
        edits.append(_shared(text, code, match, path))
    return edits


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


# --- launches ------------------------------------------------------------------------------------


def _launches(text: str, code: str, path: Path) -> list[Edit]:
    edits: list[Edit] = []
    for match in re.finditer(r"(?<!<)<<<(?!<)", code):
        line = _line(text, match.start())
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
        run = (
            f").run({quote(kernel)}, [&](auto... opsmith_arguments) "
            f"{{ {kernel}(opsmith_arguments...); }}{'' if empty else ', '}"
        )
        edits.append((end, call.end(), run))
    return edits


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
        word = re.search(r"[A-Za-z_]\w*\Z", code[:at])
        if word is None:
            return at
        at = word.start()
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


def _without_space(code: str, end: int) -> int:
    return len(re.sub(r"(?:\s|\\\n)+\Z", "", code[:end]))


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


# --- shared memory -------------------------------------------------------------------------------


def _shared(text: str, code: str, match: re.Match[str], path: Path) -> Edit:
    line = _line(text, match.start())
    before = _BEFORE_SHARED.search(code, 0, match.start())
    start = before.start() if before is not None else match.start()
    start += len(code[start : match.start()]) - len(code[start : match.start()].lstrip())
    end = _statement_end(code, match.end())
    if end < 0:
        raise UnreadableError(
            "a declaration of shared memory that opsmith does not read", path, line
        )
    words = f"{code[start : match.start()]} {code[match.end() : end]}".replace("\\\n", " ")
    dynamic = re.search(r"\bextern\b", words) is not None
    declaration = " ".join(_ALIGNED.sub(" ", _WORDS.sub(" ", words)).split())
    alignment = _ALIGNED.search(words)
    declared = [_declarator(part) for part in _split(declaration)]
    first = declared[0]
    if first is None or any(one is None for one in declared) or "=" in declaration:
        raise UnreadableError(
            f"a declaration of shared memory that opsmith does not read: {declaration}", path, line
        )
    base = first[0]
    out = []
    for number, one in enumerate(declared):
        assert one is not None
        kind = base if number == 0 else f"{base.rstrip('* ')}{one[0]}"
        out.append(_declared(kind, one[1], one[2], dynamic, _in_function(code, start), alignment))
    return start, end + 1, " ".join(out)


def _declared(
    kind: str,
    name: str,
    sizes: str,
    dynamic: bool,
    in_function: bool,
    alignment: re.Match[str] | None,
) -> str:
    if dynamic:
        if in_function:
            get = f'::opsmith::emulated::dynamic_shared<{kind}>("{name}")'
            return f"{kind}* const {name} = {get};"
        return f'static constexpr ::opsmith::emulated::DynamicShared<{kind}> {name}{{"{name}"}};'
    del alignment  # static shared memory is aligned to its type; see `shared`
    return f'auto& {name} = ::opsmith::emulated::shared<{kind} {sizes}>("{name}", [] {{}});'


def _statement_end(code: str, at: int) -> int:
    depth = 0
    while at < len(code):
        character = code[at]
        if character == ";" and depth == 0:
            return at
        if character in "{}":
            return -1
        depth += (character in "([") - (character in ")]")
        at += 1
    return -1


def _split(declaration: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for at, character in enumerate(declaration):
        depth += (character in "([{<") - (character in ")]}>")
        if character == "," and depth == 0:
            parts.append(declaration[start:at])
            start = at + 1
    return [*parts, declaration[start:]]


_DECLARATOR = re.compile(
    r"\A\s*(?P<kind>.*?)\s*(?P<name>[A-Za-z_]\w*)\s*(?P<sizes>(?:\[.*\]\s*)*)\Z"
)


def _declarator(text: str) -> tuple[str, str, str] | None:
    match = _DECLARATOR.match(text)
    return None if match is None else (match["kind"], match["name"], match["sizes"].strip())


def _in_function(code: str, at: int) -> bool:
    """Return whether a position is inside a brace that is not a namespace's."""
    open_braces: list[bool] = []
    boundary = 0
    for brace in re.finditer(r"[{};]", code[:at]):
        if brace[0] == "{":
            head = code[boundary : brace.start()]
            outer = re.search(r"\bnamespace\b|\bextern\s*\Z|\bextern\s+[\"\s]*\Z", head)
            open_braces.append(outer is None)
        elif brace[0] == "}" and open_braces:
            open_braces.pop()
        boundary = brace.end()
    return any(open_braces)
