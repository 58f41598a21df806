"""C shims: the functions through which compiled code calls a kernel without the dispatcher.

Inductor calls an operator that is in ``aot_inductor.custom_ops_to_c_shims`` by a C function whose
declaration it is given as text. It fixes the function's name, ``aoti_torch_<device>_<operator>``
without the namespace, and how each argument is passed. The declarations here bind that name to a
symbol of our own, which no other operator, and no other build of this one, has.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from opsmith import kernels
from opsmith.kernels import cpp
from opsmith.kernels.checks import CheckCode
from opsmith.kernels.members import is_dependent
from opsmith.signature import Signature
from opsmith.signature.model import (
    Parameter,
    ScalarType,
    SequenceType,
    TensorListType,
    TensorType,
)

TEMPLATE = Path(__file__).with_name("shim.cpp.j2")
INCLUDE = Path(__file__).with_name("include")

_SCALARS = {"int": "int64_t", "float": "double", "bool": "int32_t", "str": "const char*"}


@dataclass(frozen=True)
class _Argument:
    """How one argument comes, and the statements that it adds to the shim."""

    types: tuple[str, ...]
    names: tuple[str, ...]
    take: str = ""
    fill: str = ""
    writable: str = ""
    contiguous: str = ""
    write_back: str = ""

    @property
    def declared(self) -> list[str]:
        return [f"{type_} {name}" for type_, name in zip(self.types, self.names, strict=True)]


def function_name(signature: Signature, device: str) -> str:
    """The name by which compiled code calls the operator, as this PyTorch forms it."""
    from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu

    return CppWrapperCpu.get_c_shim_func_name(signature.qualname, device)


def symbol(signature: Signature, device: str, tag: str) -> str:
    """The symbol that the shim's library exports.

    Args:
        signature: the operator's.
        device: the device type.
        tag: what sets this build of the kernel apart from every other.
    """
    return f"opsmith_shim__{signature.namespace}__{signature.name}__{device}__{tag}"


def declaration(signature: Signature, device: str, tag: str) -> str:
    """The C declaration for ``custom_ops_to_c_shims``."""
    types = [type_ for p in signature.parameters for type_ in _argument(p, False).types]
    types += ["AtenTensorHandle*"] * len(signature.results)
    if not signature.results:
        types.append("void*")  # inductor passes a null for the result that is not there
    function = function_name(signature, device)
    return (
        f"AOTITorchError {function}({', '.join(types)}) "
        f"__asm__({cpp.quote(symbol(signature, device, tag))})"
    )


def source(signature: Signature, device: str, strided: bool | tuple[str, ...], tag: str) -> str:
    """The C++ source that defines the shim around the kernel's entry point.

    Args:
        signature: the operator's.
        device: the device type of the kernel.
        strided: whether the kernel takes tensors as they are, all or those named.
        tag: see `symbol`.
    """
    arguments = [
        _argument(p, strided is True or (strided is not False and p.name in strided))
        for p in signature.parameters
    ]
    declared = [text for argument in arguments for text in argument.declared]
    passed = [name for argument in arguments for name in argument.names]
    results = []
    for position, result in enumerate(signature.results):
        dtypes = result.tensor_type.dtypes
        declared.append(f"AtenTensorHandle* ret_{result.name}")
        passed.append(f"ret_{result.name}")
        results.append(
            {
                "name": cpp.identifier(result.name),
                "handle": f"result_{result.name}",
                "position": position,
                "dependent": is_dependent(signature, result),
                "dtype": "raw.opsmith_dtype" if dtypes.generic else cpp.dtype(dtypes.names[0]),
            }
        )
    if not signature.results:
        declared.append("[[maybe_unused]] void* ret_none")
        passed.append("ret_none")
    return kernels.render(
        TEMPLATE,
        signature,
        device=device,
        entry=kernels.entry_symbol(signature, device),
        symbol=symbol(signature, device, tag),
        arguments=arguments,
        declared=declared,
        passed=passed,
        results=results,
        values=bool(CheckCode(signature).values()),
    )


def _argument(parameter: Parameter, as_is: bool) -> _Argument:
    given = f"in_{parameter.name}"
    count = f"{given}_count"
    local = f"arg_{parameter.name}"
    raw = f"raw.{cpp.identifier(parameter.name)}"
    optional = parameter.optional
    match parameter.type:
        case TensorType():
            written = "true" if parameter.mutated else "false"
            checked = f"{local}.check_writable(op_name, {cpp.quote(parameter.name)});"
            return _Argument(
                ("const AtenTensorHandle*" if optional else "AtenTensorHandle",),
                (given,),
                take=f"TensorArgument {local}(share({given}));",
                fill=f"{raw} = {local}.describe({written});",
                writable=checked if parameter.mutated else "",
                contiguous="" if as_is else f"{local}.make_contiguous({written});",
                write_back=f"{local}.write_back();" if parameter.mutated else "",
            )
        case TensorListType():
            absent = f"{given} == nullptr ? raw_tensors{{-1, nullptr}} : " if optional else ""
            value = f"{given} == nullptr ? nullptr : *{given}" if optional else given
            return _Argument(
                ("const AtenTensorHandle**" if optional else "const AtenTensorHandle*", "int64_t"),
                (given, count),
                take=f"TensorSpan {local}({value}, {count});",
                fill=f"{raw} = {absent}{local}.describe();",
                contiguous="" if as_is else f"{local}.make_contiguous();",
            )
        case ScalarType("str"):
            if optional:
                value = f"*{given}, static_cast<int64_t>(std::strlen(*{given}))"
                fill = f"if ({given} != nullptr) {raw} = {{{value}}};"
                return _Argument(("const char**",), (given,), fill=fill)
            fill = f"{raw} = {{{given}, static_cast<int64_t>(std::strlen({given}))}};"
            return _Argument(("const char*",), (given,), fill=fill)
        case ScalarType(kind):
            type_ = _SCALARS[kind]
            value = f"*{given}" if optional else given
            value = f"{value} != 0" if kind == "bool" else value
            if optional:
                fill = f"if ({given} != nullptr) {raw} = {{1, {value}}};"
                return _Argument((f"const {type_}*",), (given,), fill=fill)
            return _Argument((type_,), (given,), fill=f"{raw} = {value};")
        case SequenceType(kind, _):
            type_ = f"const {_SCALARS[kind]}*"
            value = f"*{given}" if optional else given
            lines = {"fill": f"{raw} = {{{count}, {value}}};"}
            if kind == "bool":
                made = f"{given} == nullptr ? nullptr : {value}" if optional else value
                lines["take"] = f"const BoolSpan {local}({made}, {count});"
                lines["fill"] = f"{raw} = {{{count}, {local}.items()}};"
            if optional:
                lines["fill"] = (
                    f"if ({given} == nullptr) {raw} = {{-1, nullptr}};\n  else {lines['fill']}"
                )
            return _Argument(
                (f"{type_}*" if optional else type_, "int64_t"), (given, count), **lines
            )
    raise AssertionError(parameter)
