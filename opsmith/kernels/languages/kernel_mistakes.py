"""Recognize common mistakes in a kernel's source by the compiler's output."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from opsmith.kernels.codegen.argument_struct import members_of, outputs_of, template_letters
from opsmith.kernels.codegen.cpp_names import ELEMENT_TYPES, identifier
from opsmith.kernels.source import KernelSource
from opsmith.signature.model import Signature
from opsmith.system.files import source_text

_LINE = re.compile(r"^[^\S\n]*OPSMITH_KERNEL\s*\(((?:[^()]|\([^()]*\))*)\)", re.MULTILINE)
#: The parts of such a line: groups in parentheses, combinations in angle brackets, plain words.
_PART = re.compile(r"\([^()]*\)|[\w:\s]+(?:<[^<>]*>)?")
#: The messages of GCC, clang and nvcc for a name that is not declared.
_UNDECLARED = re.compile(
    r"""['"](\w+)['"] (?:does not name a type|(?:was not|has not been) declared|is undefined)"""
    r"""|(?:undeclared identifier|unknown type name) '(\w+)'"""
)
_NO_HEADER = re.compile(
    r"""fatal error: '?(\w+)\.h(?:: No such file|' file not found)"""
    r"""|cannot open source file "(\w+)\.h\""""
)
#: The messages of GCC and clang for a name that a header has for something else.
_TAKEN = re.compile(
    r"""['"‘](?:namespace |template<.*?> void )?(\w+)\b[^\n]* redeclared as different kind"""
    r"""|redefinition of '(\w+)' as different kind of symbol"""
)
#: The messages of GCC, clang and nvcc for a member that a class does not have.
_NO_MEMBER = (
    re.compile(r"""'(?P<of>[^'\n]*)' has no member named '(?P<name>\w+)'"""),
    re.compile(r"""no member named '(?P<name>\w+)' in '(?P<of>[^'\n]*)'"""),
    re.compile(r'"(?P<of>[^"\n]*)" has no member "(?P<name>\w+)"'),
)
#: The members of the classes that kernels are given.
_MEMBERS = {
    "opsmith::Tensor": "data(), size(i), sizes(), stride(i), strides(), dim(), numel(), and "
    "elements as x[i] and x(i, j)",
    "opsmith::AnyTensor": "dtype(), is<T>(), as<T>(), dim(), size(i) and numel()",
    "opsmith::List": "size() and elements as xs[i]",
    "opsmith::Output": "allocate({size, …})",
    "opsmith::AnyOutput": "allocate<T>({size, …})",
    "opsmith::Context": "parallel_for(begin, end, grain, body)",
}
_FURTHER_TYPES = {"half": ELEMENT_TYPES["float16"]}


@dataclass(frozen=True)
class _KernelLine:
    """The parts of a line ``OPSMITH_KERNEL(namespace, name, device, types…)``.

    Where there are several dtype variables, `types` are groups (``(float, double)``), or
    combinations (``opsmith::types<float, int32_t>``).
    """

    namespace: str
    name: str
    device: str
    types: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"OPSMITH_KERNEL({', '.join([self.namespace, self.name, self.device, *self.types])})"

    @property
    def elements(self) -> tuple[str, ...]:
        """The names of element types in the line."""
        return tuple(word for part in self.types for word in re.findall(r"[\w:]+", part))

    def variables(self) -> int | None:
        """Return for how many dtype variables the line is; `None` if its parts contradict it."""
        if any(part.startswith("(") for part in self.types):
            return len(self.types) if all(part.startswith("(") for part in self.types) else None
        counts = {part.count(",") + 1 for part in self.types}
        return counts.pop() if len(counts) == 1 else None

    @property
    def raw(self) -> str:
        """The struct of arguments that the line uses, which the operator's header declares."""
        return f"{self.namespace}__{self.name}_raw"


def explain(source: KernelSource, output: str) -> str:
    """Explain a failed build by a common mistake in the kernel's source.

    Args:
        output: the output of the compiler or the linker.

    Returns:
        A sentence with the remedy, without a full stop; empty for any other mistake.
    """
    return next(_mistakes(source, output), "")


def _mistakes(source: KernelSource, output: str) -> Iterator[str]:
    undeclared = {name for names in _UNDECLARED.findall(output) for name in names if name}
    text = source_text(source.path)
    lines = [_read(line) for line in _LINE.findall(text)]
    registered = {(one.namespace, one.name): one for one in source.signatures}
    names = " and ".join(one.qualname for one in source.signatures)

    taken = {name for names in _TAKEN.findall(output) for name in names if name}
    for name in taken & {part for one in source.signatures for part in (one.namespace, one.name)}:
        yield (
            f"{name!r} names the operator or its namespace, and something else in a header of the "
            "system or of C++: choose another name"
        )
    no_header = _NO_HEADER.search(output)
    if no_header:
        other = no_header[1] or no_header[2]
        yield (
            f'there is no "{other}.h": for a source, opsmith writes the headers of the operators '
            f"that it is registered for, here {names}. If {other} is another operator, register "
            "the source for it too, with register_kernel(…, source=…), before any of them is called"
        )
    for one in source.signatures:
        needs = {one.namespace, "opsmith", _right(one, source.device).raw}
        included = re.search(rf'#\s*include\s*[<"]{one.name}\.h[>"]', text)
        if not included and needs & undeclared:
            yield (
                f'it does not include "{one.name}.h", which opsmith writes from the declaration of '
                f'{one.qualname}: add #include "{one.name}.h"'
            )
    yield from _missing_members(source, output)
    yield from _other_macros(source, text)
    for line in lines:
        if line.raw in undeclared and (line.namespace, line.name) not in registered:
            yield (
                f"{line} is for {line.namespace}::{line.name}, and the source is registered for "
                f"{names}: write {_right(source.signature, source.device)}, or register the source "
                f"for {line.namespace}::{line.name} too, with register_kernel(…, source=…), before "
                "any of them is called"
            )
    for line in lines:
        signature = registered.get((line.namespace, line.name))
        if signature is not None and line.device == source.device:
            yield from _wrong_types(line, signature, undeclared)
            yield from _wrong_function(signature, undeclared, output)
    missing = re.search(r"undefined (?:reference to|symbol:?) [`']?opsmith_kernel__\w+", output)
    if missing:
        there = f"; it has {' and '.join(map(str, lines))}" if lines else ""
        right = _right(source.signature, source.device)
        yield f"it has no line {right}, which makes a function the kernel of {source.what}{there}"


def _missing_members(source: KernelSource, text: str) -> Iterator[str]:
    for found in (match for pattern in _NO_MEMBER for match in pattern.finditer(text)):
        name, owner = found["name"], re.sub(r"^(const |class |struct )*|<.*|\W*$", "", found["of"])
        if owner in _MEMBERS:
            yield f"{owner} has no member {name}; it has {_MEMBERS[owner]}"
        for signature in source.signatures:
            if owner != f"{signature.namespace}::{signature.name}_args":
                continue
            members = [member.name for member in members_of(signature)]
            members += [output.name for output in outputs_of(signature)]
            there = ", ".join(dict.fromkeys(members))
            tensors = [identifier(parameter.name) for parameter in signature.tensors]
            asked = [tensor for tensor in tensors if name.startswith(f"{tensor}_")]
            further = f"; {asked[0]} has {_MEMBERS['opsmith::Tensor']}" if asked else ""
            yield f"{owner} has no member {name}; it has {there}{further}"


def _other_macros(source: KernelSource, text: str) -> Iterator[str]:
    """Yield a sentence for each line that is like ``OPSMITH_KERNEL(…)`` but for the word."""
    for signature in source.signatures:
        start = rf"{signature.namespace}\s*,\s*{signature.name}\b"
        for macro in re.findall(rf"^[^\S\n]*(\w+)\s*\(\s*{start}", text, re.MULTILINE):
            if not macro.startswith("OPSMITH_KERNEL") and f"#define {macro}" not in text:
                right = _right(signature, source.device)
                yield f"there is no {macro}, which {signature.qualname} is given to: write {right}"


def _read(line: str) -> _KernelLine:
    found = (" ".join(part.split()) for part in _PART.findall(line))
    namespace, name, device, *types = [*(part for part in found if part), "", "", ""]
    return _KernelLine(namespace, name, device, tuple(one for one in types if one))


def _right(signature: Signature, device: str) -> _KernelLine:
    """Return a line that makes a function the operator's kernel."""
    groups = []
    for variable in signature.dtype_variables:
        there = variable.names
        usual = [name for name in ("float32", "float64") if name in there] or there[:2]
        groups.append([ELEMENT_TYPES[name] for name in usual])
    types = groups[0] if len(groups) == 1 else [f"({', '.join(group)})" for group in groups]
    return _KernelLine(signature.namespace, signature.name, device, tuple(types))


def _wrong_types(line: _KernelLine, signature: Signature, undeclared: set[str]) -> Iterator[str]:
    name, generic = signature.qualname, signature.generic
    right = _right(signature, line.device)
    if generic is None and line.types:
        yield (
            f"{line} names element types, and {name} has no generic dtype that they could be: "
            f"write {right}"
        )
    if generic is not None and not line.types:
        yield (
            f"{line} names no element type, and {name} has the generic dtype {generic.label}: "
            f"write after the device which of its dtypes the kernel is for, as in {right}"
        )
    variables = len(signature.dtype_variables)
    labels = " and ".join(variable.label for variable in signature.dtype_variables)
    if variables > 1 and line.types and line.variables() != variables:
        yield (
            f"{line} does not say the element types of {labels}, the {variables} dtype "
            f"variables of {name}: write a group for each, as in {right}, or the combinations, as "
            f"in opsmith::types<{', '.join(one.split(',')[0].strip('()') for one in right.types)}>"
        )
    if variables == 1 and line.types and line.variables() != 1:
        yield (
            f"{line} names element types of several dtype variables, and {name} has one, "
            f"{labels}: write {right}"
        )
    for written in line.elements:
        type_ = {**ELEMENT_TYPES, **_FURTHER_TYPES}.get(written)
        if written in undeclared and type_ is not None:
            yield f"{line} takes types of C++: write {type_} for {written}"
    if line.name in line.elements:
        yield (
            f"{line} takes element types after the device, and finds the function by the "
            f"operator's name: write {right}"
        )


def _wrong_function(signature: Signature, undeclared: set[str], output: str) -> Iterator[str]:
    name, arguments = signature.name, f"{signature.namespace}::{signature.name}_args"
    letters = template_letters(signature)
    typed = ", ".join(f"typename {letter}" for letter in letters)
    before, of = (f"template <{typed}> ", f"<{', '.join(letters)}>") if letters else ("", "")
    function = f"{before}void {name}(const opsmith::Context&, const {arguments}{of}&)"
    if name in undeclared:
        yield (
            f"it has no function {name}, which OPSMITH_KERNEL looks for by the operator's name: "
            f"declare the kernel as {function}"
        )
    unfit = rf"""no matching function for call to '{name}\b|no instance of .*"{name}\b"""
    if re.search(unfit, output):
        yield (
            f"its function {name} cannot be called with what OPSMITH_KERNEL gives it: declare it "
            f"as {function}"
        )
