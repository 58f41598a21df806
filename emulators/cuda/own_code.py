"""Run the preprocessor over a CUDA source, and parse the lines that are the user's.

Behind the preprocessor there are no macros, no other branches of ``#if`` and no comments: what is
declared stands there as the compiler sees it, however it was written. Headers of other software
stay as lines ``#include``, so that the rewritten source is compiled with precompiled headers.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

_OURS = Path(__file__).parents[1]
#: Keeps the words of CUDA that the emulation's headers define away; see emulated/cuda.h.
_KEEPING_WORDS = "-DOPSMITH_KEEPS_WORDS_OF_CUDA"
_MARKER = re.compile(r'^# (\d+) "((?:[^"\\\n]|\\.)*)"([ \d]*)\n', re.MULTILINE)
_ENTERED, _OF_SYSTEM = "1", "3"
_DIRECTIVE = re.compile(r'#(include|define|undef)\s+("[^"]*"|<[^>]*>|\w+).*')
_ABSENT = re.compile(
    r"^(?P<path>.+?):(?P<line>\d+):\d+: fatal error: "
    r"(?:(?P<gcc>[^\n]+): No such file or directory|'(?P<clang>[^'\n]+)' file not found)",
    re.MULTILINE,
)
_CAME_FROM = re.compile(r"^(?:In file included| +) from (.+?):(\d+)", re.MULTILINE)
_LINE = re.compile(r'^#line (\d+) "(.*)"\n', re.MULTILINE)
#: What the grammar lacks: `[=] __device__ (int i) { … }`, and attributes behind a variable.
_UNKNOWN = re.compile(
    r"(?<=[\]>])\s*(?:__(?:host|device)__\s*)+(?=[({])"
    r"|(?:__attribute__\s*\(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\)\s*)+(?=[;,=])"
)
_DIRECTIVES = re.compile(r"^[ \t]*#.*", re.MULTILINE)
_NOT_SPACE = re.compile(r"\S")
#: The nodes that are looked at, by name.
_QUERY = """
(kernel_call_syntax) @launch
(gnu_asm_expression) @asm
(launch_bounds) @bounds
(function_definition) @function
(function_declarator declarator: (identifier) @called)
"__shared__" @shared
"__device__" @device
"__noinline__" @noinline
[(string_literal) (raw_string_literal) (char_literal)] @literal
[
 (init_declarator declarator: (identifier) @variable)
 (parameter_declaration declarator: (identifier) @variable)
 (parameter_declaration declarator: (reference_declarator (identifier) @variable))
 (parenthesized_declarator (_ (identifier) @variable))
]
"""


class NoParserError(Exception):
    """Raised where the parser of CUDA is not installed."""


class UnreadableError(Exception):
    """Raised for code that cannot be rewritten.

    Attributes:
        line: the number of the line, from 1.
    """

    def __init__(self, message: str, path: Path, line: int) -> None:
        super().__init__(message)
        self.path = path
        self.line = line


@dataclass(frozen=True)
class OwnCode:
    """The user's lines of a source and of the headers beside it, behind the preprocessor.

    Attributes:
        text: the lines, a character for each byte, with the directives ``#line`` of their places.
        included: the headers of other software, in their brackets or quotes, with the positions
            where they are included.
        instead: what to compile in place of the text, where the preprocessor stopped with an error:
            the compiler reports it. Else empty.
        absent: the header that the preprocessor stopped at, with the user's line that includes it.
    """

    text: str
    included: tuple[tuple[str, int], ...] = ()
    instead: str = ""
    absent: tuple[str, Path, int] | None = None

    def place(self, at: int) -> tuple[Path, int]:
        """Return the file and the line of a position of the text."""
        *_, last = _LINE.finditer(self.text, 0, at + 1)
        line = int(last[1]) + self.text.count("\n", last.end(), at)
        return Path(_unescaped(last[2])), line

    def unreadable(self, what: str, at: int) -> UnreadableError:
        """Return the error for code at a position of the text."""
        return UnreadableError(what, *self.place(at))

    def of(self, *nodes: Node) -> str:
        """Return the text from one node to another."""
        return self.text[nodes[0].start_byte : nodes[-1].end_byte]

    @cached_property
    def code(self) -> str:
        """The text with blanks for directives and for what the grammar lacks, all in its place."""
        return _UNKNOWN.sub(_blank, _DIRECTIVES.sub(_blank, self.text))

    @cached_property
    def plain(self) -> str:
        """The text with blanks for directives and literals, and all else in its place."""
        parts, at = [], 0
        for node in self.found("literal"):
            parts += [self.code[at : node.start_byte], _NOT_SPACE.sub(" ", self.of(node))]
            at = node.end_byte
        return "".join([*parts, self.code[at:]])

    def found(self, name: str) -> list[Node]:
        """Return the nodes of one name of `_QUERY`, in the order of the text."""
        return sorted(self._nodes.get(name, ()), key=lambda node: node.start_byte)

    @cached_property
    def _nodes(self) -> dict[str, list[Node]]:
        from tree_sitter import Language, Parser, Query, QueryCursor
        from tree_sitter_cuda import language

        grammar = Language(language())
        tree = Parser(grammar).parse(self.code.encode("latin-1"))
        return QueryCursor(Query(grammar, _QUERY)).captures(tree.root_node)


def _blank(match: re.Match[str]) -> str:
    return _NOT_SPACE.sub(" ", match[0])


def read_own_code(
    command: Sequence[str], source: Path, headers: Sequence[str], others: Sequence[Path] = ()
) -> OwnCode:
    """Run the preprocessor over a source.

    Args:
        command: the C++ compiler, with the options that the source is compiled with.
        headers: the headers to include first.
        others: folders whose headers are not the user's.

    Raises:
        NoParserError: tree-sitter or its grammar of CUDA is not installed.
    """
    if find_spec("tree_sitter_cuda") is None or find_spec("tree_sitter") is None:
        raise NoParserError(
            "the emulation of CUDA reads sources with tree-sitter and its grammar of CUDA, which "
            "are not installed"
        )
    command = (
        *(*command, "-x", "c++", "-E", "-dD", "-dI", _KEEPING_WORDS),
        *(word for header in headers for word in ("-include", header)),
        str(source),
    )
    known = _KNOWN.get(command)
    if known is None or known[0] != _stamps(known[0]):
        run = subprocess.run(command, capture_output=True, env={**os.environ, "LC_ALL": "C"})
        own, code = _own_lines(str(source), (_OURS, *others), run.stdout.decode("latin-1"))
        if run.returncode != 0:
            absent = _absent(run.stderr.decode(errors="replace"), own)
            return replace(code, instead=f'#include "{source}"\n', absent=absent)
        known = _KNOWN[command] = (_stamps(own), code)
    return known[1]


#: By command: the user's files with their times, and what was read.
_KNOWN: dict[tuple[str, ...], tuple[dict[str, int], OwnCode]] = {}


def _stamps(files: Iterable[str]) -> dict[str, int]:
    return {file: os.stat(file).st_mtime_ns for file in files}


def _own_lines(source: str, others: Sequence[Path], output: str) -> tuple[list[str], OwnCode]:
    """Return the user's files, and their lines."""
    is_own: dict[str, bool] = {}
    parts: list[str] = []
    included: dict[int, str] = {}  # the headers of others by the part of the text
    last = 0  # the part of the last include
    defines: dict[str, str] = {}
    markers = list(_MARKER.finditer(output))
    ends = [*(marker.start() for marker in markers[1:]), len(output)]
    for marker, end in zip(markers, ends, strict=True):
        line, file, flags = marker.groups()
        if file not in is_own:
            name = _unescaped(file)
            is_own[file] = name == source or not (
                _OF_SYSTEM in flags
                or file.startswith("<")
                or file.endswith("/")  # the working folder
                or any(map(Path(name).is_relative_to, others))
            )
        entered = _ENTERED in flags and last in included
        if not is_own[file]:
            if entered:
                # A macro of the user's may decide what the header declares.
                before, after = "".join(defines.values()), "\n#undef ".join(["", *defines])
                parts[last] = f"{before}#include {included[last]}{after}\n"
            continue
        if entered:
            del included[last]
        parts.append(f'#line {max(int(line), 1)} "{file}"\n')
        for text in output[marker.end() : end].splitlines(keepends=True):
            directive = _DIRECTIVE.match(text)
            word, name = (None, "") if directive is None else directive.groups()
            if word == "include":
                last = len(parts)
                included[last] = name
            elif word == "define":
                defines[name] = text
            elif word == "undef":
                defines.pop(name, None)
            parts.append("\n" if word in ("include", "define") else text)
    files = [_unescaped(file) for file, own in is_own.items() if own]
    names = {Path(file).name for file in files}
    for part, header in list(included.items()):
        # One that was included before was skipped: others stay, as they may be new elsewhere.
        if parts[part] == "\n" and Path(header[1:-1]).name in names:
            del included[part]
        elif parts[part] == "\n":
            parts[part] = f"#include {header}\n"
    at = list(accumulate(map(len, parts), initial=0))
    found = tuple((header, at[part]) for part, header in included.items())
    return files, OwnCode("".join(parts), found)


def _unescaped(name: str) -> str:
    """Return the name of a file as the preprocessor escapes its bytes."""
    escaped = re.compile(rb"\\([0-7]{3}|.)")
    plain = escaped.sub(
        lambda m: m[1] if len(m[1]) == 1 else bytes([int(m[1], 8)]), name.encode("latin-1")
    )
    return plain.decode(errors="surrogateescape")


def _absent(said: str, own: list[str]) -> tuple[str, Path, int] | None:
    found = _ABSENT.search(said)
    if found is None:
        return None
    places = [(found["path"], found["line"]), *_CAME_FROM.findall(said, 0, found.start())]
    path, line = next((place for place in places if place[0] in own), (own[0], "1"))
    return found["gcc"] or found["clang"], Path(path), int(line)
