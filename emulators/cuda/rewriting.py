"""Rewrite launches (``<<<…>>>``), shared memory and inline PTX to C++, and keep line numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from emulators.cuda.declarations import Edit, declared_edits, enclosing
from emulators.cuda.inline_ptx import HEADER, inline_ptx
from emulators.cuda.own_code import OwnCode

if TYPE_CHECKING:
    from tree_sitter import Node

#: Words that nothing else may follow from: what is left of these was not understood.
_REWRITTEN = re.compile(r"<<<(?!<)|\b__shared__\b|\b(?:asm|__asm__|__asm)\b")
_NULL = re.compile(r"\b(?:NULL|__null)\b")


def rewrite(code: OwnCode) -> str:
    """Return the user's code as C++; and unchanged where the compiler refuses it in any case.

    Raises:
        UnreadableError: the message names the line.
    """
    if code.instead:
        return code.instead
    ptx = list(inline_ptx(code))
    edits = [(word.start_byte, word.end_byte, "") for word in code.found("noinline")]
    edits += [*ptx, *_launches(code), *declared_edits(code)]
    return (f"#include <{HEADER}>\n" if ptx else "") + _edited(code, edits)


def rewrite_launches(code: OwnCode) -> str:
    """Return the user's code with nothing but its launches as C++; see `rewrite`."""
    return code.instead or _edited(code, list(_launches(code)))


def _edited(code: OwnCode, edits: list[Edit]) -> str:
    parts, at = [], 0
    left = []
    for start, end, replacement in sorted(edits):
        left.append((at, start))
        # Keep the number of lines.
        parts += [code.text[at:start], replacement, "\n" * code.text.count("\n", start, end)]
        at = end
    for start, end in [*left, (at, len(code.text))]:
        word = _REWRITTEN.search(code.plain, start, end)
        if word is not None:
            instead = "; write opsmith::launch(...) instead" if word[0] == "<<<" else ""
            what = f"'{word[0]}' in code that opsmith does not read{instead}"
            raise code.unreadable(what, word.start())
    return "".join([*parts, code.text[at:]]).encode("latin-1").decode(errors="replace")


def _launches(code: OwnCode) -> Iterator[Edit]:
    for node in code.found("launch"):
        call = node.parent
        assert call is not None
        function = call.child_by_field_name("function")
        arguments = call.child_by_field_name("arguments")
        if function is None or arguments is None:
            continue
        kernel = " ".join(code.of(function).split())
        # A function of a header may have the kernel's name, as write(2) may.
        wanted = "cudaFuncSetAttribute" in code.text and _is_one_function(code, function)
        address = kernel if wanted else "nullptr"
        # The device may not read a variable of the host's that holds the kernel.
        held = _is_variable(code, function)
        capture = f", opsmith_kernel = {kernel}" if held else ""
        called = "opsmith_kernel" if held else kernel
        comma = ", " if arguments.named_children else ""
        yield function.start_byte, node.start_byte + 3, "::emulated::Configured("
        yield (
            node.end_byte - 3,
            arguments.start_byte + 1,
            f").run({_quote(kernel)}, {address}, [&{capture}](auto... opsmith_arguments) "
            f"{{ {called}(opsmith_arguments...); }}{comma}",
        )
        # The kernel's parameters are not known where an argument passes on the way to them.
        for null in _NULL.finditer(code.plain, arguments.start_byte, arguments.end_byte):
            yield null.start(), null.end(), "nullptr"


def _quote(text: str) -> str:
    """Return a text as a C++ string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _is_one_function(code: OwnCode, kernel: Node) -> bool:
    """Return whether an expression surely names one function of the source, with an address.

    Neither an overloaded function nor a template whose arguments are deduced has an address.
    """
    given = kernel.child_by_field_name("arguments")
    name = code.of(kernel if given is None else kernel.children[0])
    functions, templates = [], set()
    for called in code.found("called"):
        function = enclosing(called, "function_definition", "declaration")
        if function is None or code.of(called) != name:
            continue
        functions.append(function)
        if any(child.type == "__global__" for child in function.children):
            outer = function.parent
            parameters = outer and outer.child_by_field_name("parameters")
            templates.add(None if parameters is None else code.of(parameters))
    if len(templates) != 1 or [one.type for one in functions].count("function_definition") > 1:
        return False
    (text,) = templates
    if text is None or given is None:
        return text is None and given is None
    return "..." not in text and text.count(",") == code.of(given).count(",")


def _is_variable(code: OwnCode, kernel: Node) -> bool:
    """Return whether an expression surely names a variable."""
    # A kernel cannot be a member of a class, so a member holds a pointer to one.
    held = ("subscript_expression", "field_expression", "pointer_expression")
    while kernel.type == "parenthesized_expression":
        kernel = kernel.named_children[0]
    if kernel.type in held:
        return True
    for variable in code.found("variable"):
        if code.of(variable) == code.of(kernel) and variable.start_byte < kernel.start_byte:
            scope = enclosing(variable, "parameter_list", "compound_statement")
            if scope is not None and scope.type == "parameter_list":
                scope = enclosing(scope, "function_definition", "lambda_expression", "declaration")
            if scope is None or scope.end_byte > kernel.start_byte:
                return True
    return False
