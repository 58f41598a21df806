"""Build a function that only compares a call's arguments with the declaration.

Kernels without an adapter of opsmith's need it: those with a ``TORCH_LIBRARY`` block.
``include/opsmith/detail/arguments.h`` describes how the function is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from opsmith.kernels.codegen import cpp_names
from opsmith.kernels.codegen.cache_key import generated_key
from opsmith.kernels.codegen.cpp_names import arguments_symbol
from opsmith.kernels.toolchain.devices import DEVICES, HOST
from opsmith.kernels.toolchain.recipe import Recipe
from opsmith.kernels.toolchain.units import Generated
from opsmith.signature.model import Signature
from opsmith.signature.parameters import (
    Parameter,
    ScalarType,
    SequenceType,
    TensorListType,
    TensorType,
)

_ELEMENTS = {"int": "int64_t", "float": "double", "bool": "uint8_t"}


def build_arguments_check(signature: Signature) -> Path:
    """Build the library that exports the function, and return its path; it does not need PyTorch.

    Raises:
        BuildError: the library does not compile.
        MissingDependencyError: there is no compiler.
    """
    return Recipe(
        f"{signature.namespace}__{signature.name}__arguments",
        generated=Generated(generated_key(signature, "arguments"), lambda: files(signature)),
        defines=DEVICES[HOST].compile_definitions,
        torch="none",
        what=f"the validation of {signature.qualname}",
    ).build()


def files(signature: Signature) -> dict[str, str]:
    """Return the files to compile, by name.

    Results are not validated; of sequences of strings, only the lengths are.
    """
    from opsmith.kernels.codegen import render

    kept = tuple(p for p in signature.parameters if not _is_texts(p))
    checked = replace(signature, parameters=kept, results=(), data_dependent=())
    name = signature.name
    return {
        f"{name}.h": render.argument_header(checked),
        f"{name}_check.h": render.validation_header(checked),
        f"{name}_arguments.cpp": render.render(
            render.TEMPLATES / "arguments.cpp.j2",
            checked,
            symbol=arguments_symbol(signature),
            fill=[line for i, p in enumerate(signature.parameters) for line in _fill(p, i)],
        ),
    }


def _is_texts(parameter: Parameter) -> bool:
    return isinstance(parameter.type, SequenceType) and parameter.type.kind == "str"


def _fill(parameter: Parameter, position: int) -> Iterator[str]:
    """Yield the statements that read one argument from an array of ``opsmith_argument``."""
    raw, given = f"raw.{cpp_names.identifier(parameter.name)}", f"given[{position}]"
    name = cpp_names.quote(parameter.name)
    if not parameter.optional and not parameter.is_tensor:  # `bind` reports missing tensors
        wanted = cpp_names.quote(str(parameter.type))
        yield f"if ({given}.count < 0) arguments.absent(detail::Where{{{name}}}, {wanted});"
    match parameter.type:
        case TensorType():
            yield f"{raw} = detail::items<DLTensor>({given});"
        case TensorListType():
            yield f"{raw} = {{{given}.count, detail::items<DLTensor>({given})}};"
        case ScalarType("str"):
            yield f"{raw} = {{detail::items<char>({given}), {given}.count}};"
        case ScalarType(kind):
            value = f"*detail::items<{_ELEMENTS[kind]}>({given})"
            if parameter.optional:
                yield f"if ({given}.count >= 0) {raw} = {{1, {value}}};"
            else:
                yield f"{raw} = {value};"
        case SequenceType("str", length):
            if length is not None:
                present = f"if ({given}.count >= 0) " if parameter.optional else ""
                yield f"{present}arguments.length({name}, {given}.count, {length});"
        case SequenceType(kind, _):
            yield f"{raw} = {{{given}.count, detail::items<{_ELEMENTS[kind]}>({given})}};"
