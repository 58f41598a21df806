"""Rewrite declarations of CUDA: shared memory, variables of the device, bounds, host functions."""

from __future__ import annotations

import re
from pathlib import Path

Edit = tuple[int, int, str]

_SKIPPED = re.compile(
    r'//(?:\\\n|[^\n])*|/\*.*?\*/|R"([^()\\\s]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)
_SHARED = re.compile(r"\b__shared__\b")
_BEFORE_SHARED = re.compile(
    r"(?:\b(?:extern|static|volatile|const)\b|\b__align__\s*\([^()]*\)|\balignas\s*\([^()]*\)|\s)*\Z"
)
#: Matches a declaration up to `__shared__` whose type comes first: `extern float __shared__ s[];`.
_TYPE_BEFORE = re.compile(
    r"(?:^|[;{}])[ \t]*(?P<words>(?:[A-Za-z_][\w:]*(?:<[^;{}<>()]*>)?\s+)+)\Z", re.MULTILINE
)
_ALIGNED = re.compile(r"\b(?:__align__|alignas)\s*\(([^()]*)\)")
_WORDS = re.compile(r"\b(?:extern|static)\b")


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


def uncommented(text: str) -> str:
    """Return the text with blanks for comments, and all else in its place."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0]) if match[0].startswith("/") else match[0]

    return _SKIPPED.sub(blank, text)


def declared_edits(text: str, code: str, path: Path) -> list[Edit]:
    """Return the edits of a file's declarations.

    Args:
        text: the file.
        code: the same without comments and literals; see `masked`.
        path: its path, for messages.

    Raises:
        UnreadableError: the message names the line.
    """
    edits: list[Edit] = []
    for match in _SHARED.finditer(code):
        edits += _defined_with_type(text, code, match) or [_shared(text, code, match, path)]
    return [*edits, *_variables(code), *_bounds(code), *_host_functions(code)]


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


# --- shared memory -------------------------------------------------------------------------------


def _shared(text: str, code: str, match: re.Match[str], path: Path) -> Edit:
    line = _line(text, match.start())
    near = max(0, match.start() - 200)  # comments are long runs of blanks here
    before = _BEFORE_SHARED.search(code, near, match.start())
    start = before.start() if before is not None else match.start()
    start += len(code[start : match.start()]) - len(code[start : match.start()].lstrip())
    typed = _TYPE_BEFORE.search(code, near, match.start())
    if typed is not None:
        start = min(start, typed.start("words"))
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


_TYPE_WITH_BODY = re.compile(
    r"\s*(?P<head>(?:union|struct)\b(?:\s*(?:__align__|alignas)\s*\([^()]*\))?)"
    r"\s*(?P<name>[A-Za-z_]\w*)?\s*\{"
)


def _defined_with_type(text: str, code: str, match: re.Match[str]) -> list[Edit]:
    """Return the edits of a variable whose type is defined beside it; none for other variables.

    Such as ``__shared__ union { A a; B b; } room;``.
    """
    body = _TYPE_WITH_BODY.match(code, match.end())
    close = closing(code, body.end()) if body is not None else -1
    end = _statement_end(code, close + 1) if close >= 0 else -1
    if body is None or end < 0:
        return []
    kind = body["name"] or f"OpsmithShared{_line(text, match.start())}"
    declared = [_declarator(f"{kind} {part}") for part in _split(code[close + 1 : end])]
    if any(one is None for one in declared):
        return []
    out = [_declared(kind, one[1], one[2], False, True, None) for one in declared if one]
    return [
        (match.start(), body.end(), f"{body['head']} {kind} {{"),
        (close + 1, end + 1, f"; {' '.join(out)}"),
    ]


def _declared(
    kind: str,
    name: str,
    sizes: str,
    dynamic: bool,
    in_function: bool,
    alignment: re.Match[str] | None,
) -> str:
    if dynamic:
        # An element of `float s[][8]` is an array.
        kind += re.sub(r"^\s*\[[^\]]*\]", "", sizes).rstrip()
        if in_function:
            get = f'::opsmith::emulated::dynamic_shared<{kind}>("{name}")'
            return f"auto* const {name} = {get};"
        return f'static constexpr ::opsmith::emulated::DynamicShared<{kind}> {name}{{"{name}"}};'
    aligned = f", ::opsmith::emulated::aligned_as({alignment[1]})" if alignment else ""
    return (
        f'auto& {name} = ::opsmith::emulated::shared<{kind} {sizes}>("{name}", [] {{}}{aligned});'
    )


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


# --- variables of the device ---------------------------------------------------------------------

_VARIABLE = re.compile(r"\b__device__\b")
#: In a section of their own, so that what is beside a variable is no other memory of the library's.
_APART = '__attribute__((section("opsmith_device"), aligned(64)))'
_NO_VARIABLE = re.compile(r"[(]|\b(?:const|constexpr|__constant__|template|extern|inline|using)\b")


def _variables(code: str) -> list[Edit]:
    """Register `__device__` variables, so that accesses to them are watched."""
    edits = []
    for match in _VARIABLE.finditer(code):
        start = max(code.rfind(mark, 0, match.start()) for mark in ";{}#") + 1
        line = code[code.rfind("\n", 0, match.start()) + 1 : match.start()]
        end = _statement_end(code.replace("{", "(").replace("}", ")"), match.end())
        if end < 0 or "#" in line or code[start - 1 : start] == "#":
            continue
        words = code[match.end() : end]
        parts = [re.split(r"[={]", part)[0] for part in _split(words)]
        declaration = " ".join(parts)
        before = code[start : match.start()]
        if _NO_VARIABLE.search(before) or _NO_VARIABLE.search(_ALIGNED.sub(" ", declaration)):
            continue
        if _in_function(code, match.start()):
            continue
        names = [_declarator(part) for part in parts]
        if any(one is None for one in names):
            continue
        registered = "".join(
            f" static const ::opsmith::emulated::DeviceVariable opsmith_variable_{one[1]}"
            f'{{::opsmith::emulated::device_variable("{one[1]}", {one[1]})}};'
            for one in names
            if one is not None
        )
        edits.append((match.end(), match.end(), f" {_APART}"))
        edits.append((end + 1, end + 1, registered))
    return edits


# --- launch bounds -------------------------------------------------------------------------------

_BOUNDS = re.compile(r"\b__launch_bounds__\s*\(")


def _bounds(code: str) -> list[Edit]:
    """Have a kernel with launch bounds compare them with the block that it runs in."""
    edits = []
    for match in _BOUNDS.finditer(code):
        close = closing(code, match.end())
        if close < 0:
            continue
        most = _split(code[match.end() : close])[0].strip()
        body = _body(code, close + 1)
        if body >= 0 and most:
            check = f" ::opsmith::emulated::check_threads({' '.join(most.split())});"
            edits.append((body + 1, body + 1, check))
    return edits


def closing(code: str, at: int) -> int:
    """Return the position of the bracket that closes one opened before `at`; -1 without one."""
    depth = 1
    while at < len(code):
        depth += (code[at] in "([{") - (code[at] in ")]}")
        if depth == 0:
            return at
        at += 1
    return -1


def _body(code: str, at: int) -> int:
    """Return the position of the next `{` of a function's body; -1 if it is only declared."""
    while at < len(code):
        if code[at] == "{":
            return at
        if code[at] in ";}":
            return -1
        at = closing(code, at + 1) + 1 if code[at] == "(" else at + 1
        if at == 0:
            return -1
    return -1


# --- functions of the host -----------------------------------------------------------------------

_FUNCTION = re.compile(
    r"\A\s*(?:template\s*<[^{};]*?>\s*)?(?P<words>[A-Za-z_][\w:<>,*&\s]*?[\s*&])"
    r"(?P<name>[A-Za-z_]\w*)\s*\("
)
# A function object's call, which an algorithm makes on the device.
_CALL = re.compile(
    r"\A(?P<words>[^{};]*?)\b(?P<name>operator\s*\(\s*\))\s*\([^{};]*\)"
    r"\s*(?:const\b\s*|noexcept\b\s*)*\Z"
)
_DEVICE = re.compile(
    r"\b(?:__device__|__global__|constexpr|consteval|operator|friend|struct|class|union|enum|"
    r"namespace|using|typedef|extern|return|else|__host__|[A-Z][A-Z0-9_]{2,})\b"
)
_DEFINED = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
_PREPROCESSOR = re.compile(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", re.MULTILINE)


def _host_functions(code: str) -> list[Edit]:
    """Have a function without `__device__` refuse to be called by device code.

    Functions whose declaration has a macro in it are left alone.
    """
    macros = set(_DEFINED.findall(code))
    code = _PREPROCESSOR.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), code)
    edits = []
    open_braces: list[bool] = []  # whether each is a namespace's
    boundary = 0
    for brace in re.finditer(r"[{};]", code):
        head = code[boundary : brace.start()]
        if brace[0] == "{":
            outside = all(open_braces)
            open_braces.append(re.search(r"\bnamespace\b", head) is not None)
            found = _CALL.match(head)
            if found is None and outside and head.rstrip().endswith(")"):
                found = _FUNCTION.match(head)
            if found is not None and not (
                _DEVICE.search(found["words"]) or macros & set(re.findall(r"\w+", found["words"]))
            ):
                name = found["name"]
                at = brace.end()
                edits.append((at, at, f' ::opsmith::emulated::host_only("{name}");'))
        elif brace[0] == "}" and open_braces:
            open_braces.pop()
        boundary = brace.end()
    return edits


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
