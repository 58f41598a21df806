"""Rewrite declarations of CUDA: shared memory, variables of the device, bounds, host functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from emulators.cuda.own_code import OwnCode, UnreadableError

if TYPE_CHECKING:
    from tree_sitter import Node

Edit = tuple[int, int, str]


def declared_edits(code: OwnCode) -> Iterator[Edit]:
    """Yield the edits of a source's declarations.

    Raises:
        UnreadableError: the message names the line.
    """
    yield from _shared(code)
    yield from _variables(code)
    for bounds in code.found("bounds"):
        body = _body(enclosing(bounds, "function_definition"))
        if body is not None:
            most = " ".join(code.of(bounds.named_children[0]).split())
            check = f" ::emulated::check_threads({most});"
            yield body.start_byte + 1, body.start_byte + 1, check
    for function in code.found("function"):
        yield from _host_only(code, function)


def enclosing(node: Node | None, *types: str) -> Node | None:
    """Return the nearest node of some types that a node is in, itself included; else `None`."""
    while node is not None and node.type not in types:
        node = node.parent
    return node


def _body(function: Node | None) -> Node | None:
    body = None if function is None else function.child_by_field_name("body")
    return body if body is not None and body.type == "compound_statement" else None


def _name(declarator: Node) -> Node | None:
    """Return the identifier that a declarator declares; `None` if it is none of a variable."""
    node: Node | None = declarator
    while node is not None and node.type != "identifier":
        if node.type == "function_declarator" and node.children[0].type == "identifier":
            return None
        inner = node.child_by_field_name("declarator")
        node = inner or next(iter(node.named_children), None)
    return node


def _unread(code: OwnCode, what: str, node: Node) -> UnreadableError:
    text = " ".join(code.of(node).split())
    what = f"a declaration of {what} that opsmith does not read: {text}"
    return code.unreadable(what, node.start_byte)


# --- shared memory -------------------------------------------------------------------------------

_ALIGNED = re.compile(r"\b(?:alignas|_*aligned_*)\s*\(((?:[^()]|\([^()]*\))*)\)")
_DROPPED = re.compile(
    r"\b__shared__|^(?:extern$|static$|alignas\b|__attribute__\b|\[\[).*", re.DOTALL
)


def _shared(code: OwnCode) -> Iterator[Edit]:
    for word in code.found("shared"):
        declaration = enclosing(word, "declaration")
        if declaration is None:
            raise _unread(code, "shared memory", word)
        declarators = declaration.children_by_field_name("declarator")
        plain = [one.type != "init_declarator" and _name(one) is not None for one in declarators]
        if not plain or not all(plain) or declaration.has_error:
            raise _unread(code, "shared memory", declaration)
        yield from _asked_of_the_runtime(code, declaration, declarators)


def _asked_of_the_runtime(
    code: OwnCode, declaration: Node, declarators: list[Node]
) -> Iterator[Edit]:
    type_ = declaration.child_by_field_name("type")
    assert type_ is not None
    before = [node for node in declaration.children if node.end_byte <= declarators[0].start_byte]
    words = [code.of(node) for node in before]
    around = code.text[declaration.start_byte : type_.start_byte]
    around += code.text[type_.end_byte : declaration.end_byte]
    alignment = _ALIGNED.search(around)
    body = type_.child_by_field_name("body")
    start = declaration.start_byte
    if body is not None:
        # Define the type first.
        named = type_.child_by_field_name("name")
        own = f"OpsmithShared{start}" if named is None else code.of(named)
        words[before.index(type_)] = own
        yield start, type_.start_byte, ""
        if named is None:
            yield body.start_byte, body.start_byte, f" {own} "
        start = type_.end_byte
    kind = " ".join(" ".join(_DROPPED.sub("", word) for word in words).split())
    inside = enclosing(declaration, "compound_statement") is not None
    aligned = f", ::emulated::aligned_as({alignment[1] or alignment[2]})" if alignment else ""
    out = [] if body is None else [";"]
    for declarator in declarators:
        name, rest = _without_name(code, declarator)
        if "extern" not in words:
            get = f'::emulated::shared<{kind} {rest}>("{name}", [] {{}}{aligned})'
            out.append(f"auto& {name} = {get};")
            continue
        # An element of `float s[][8]` is an array.
        element = kind + re.sub(r"^\s*\[[^\]]*\]", "", rest)
        if inside:
            get = f'::emulated::dynamic_shared<{element}>("{name}")'
            out.append(f"auto* const {name} = {get};")
        else:
            kept_for = f"static constexpr ::emulated::DynamicShared<{element}>"
            out.append(f'{kept_for} {name}{{"{name}"}};')
    yield start, declaration.end_byte, " ".join(out)


def _without_name(code: OwnCode, declarator: Node) -> tuple[str, str]:
    """Return the name of a declarator, and its text without this name."""
    name = _name(declarator)
    assert name is not None
    text = code.of(declarator)
    at = name.start_byte - declarator.start_byte
    rest = f"{text[:at]}{text[at + name.end_byte - name.start_byte :]}"
    return code.of(name), " ".join(rest.split())


# --- variables of the device ---------------------------------------------------------------------

#: In a section of their own, so that what is beside a variable is no other memory of the library's.
_APART = ' __attribute__((section("opsmith_device"), aligned(64)))'
_AROUND_WORDS = ("type_qualifier", "sized_type_specifier")
_NO_VARIABLE = frozenset(("constexpr", "__constant__", "extern", "inline"))


def _variables(code: OwnCode) -> Iterator[Edit]:
    """Register `__device__` variables, so that accesses to them are watched."""
    for word in code.found("device"):
        declaration = word.parent
        while declaration is not None and declaration.type in _AROUND_WORDS:
            declaration = declaration.parent
        if declaration is None or declaration.type != "declaration":
            continue
        words = {code.of(node) for node in declaration.children}
        inside = enclosing(declaration, "template_declaration", "compound_statement")
        declarators = declaration.children_by_field_name("declarator")
        names = [name for one in declarators if (name := _name(one)) is not None]
        if words & _NO_VARIABLE or inside is not None or len(names) < len(declarators):
            continue
        if any(_is_const(code, one, words) for one in declarators):
            continue
        if declaration.has_error:
            raise _unread(code, "the device's memory", declaration)
        yield word.end_byte, word.end_byte, _APART
        registered = "".join(
            f" static const ::emulated::DeviceVariable opsmith_variable_{name}"
            f'{{::emulated::device_variable("{name}", {name})}};'
            for name in map(code.of, names)
        )
        yield declaration.end_byte, declaration.end_byte, registered


def _is_const(code: OwnCode, declarator: Node, words: set[str]) -> bool:
    """Return whether a variable is constant itself, not only what it points to."""
    const = "const" in words
    node: Node | None = declarator
    while node is not None:
        if node.type == "pointer_declarator":
            const = any(code.of(child) == "const" for child in node.children)
        node = node.child_by_field_name("declarator")
    return const


# --- functions of the host -----------------------------------------------------------------------

_NOT_OF_HOST = re.compile(r"\b(?:__device__|__global__|constexpr|consteval|friend)\b")


def _host_only(code: OwnCode, function: Node) -> Iterator[Edit]:
    """Have a function refuse device code if it is the host's, and the host if it is a kernel.

    A function object's call is one too, which an algorithm makes on the device.
    """
    body, declarator = _body(function), function.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "function_declarator":
        declarator = declarator.child_by_field_name("declarator")
    called = None if declarator is None else declarator.child_by_field_name("declarator")
    if body is None or called is None:
        return
    name = "".join(code.of(called).split())
    of_class = enclosing(function, "class_specifier", "struct_specifier", "compound_statement")
    if name != "operator()" and (called.type != "identifier" or of_class is not None):
        return
    at, before = body.start_byte + 1, code.plain[function.start_byte : called.start_byte]
    if "__global__" in before.split():
        yield at, at, f' ::emulated::kernel_only("{name}");'
    elif not _NOT_OF_HOST.search(before):
        yield at, at, f' ::emulated::host_only("{name}");'
        type_ = function.child_by_field_name("type")
        if type_ is not None and called.type == "identifier":
            yield type_.start_byte, type_.start_byte, "OPSMITH_OF_HOST "
