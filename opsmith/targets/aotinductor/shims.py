"""Generate C shims: functions through which compiled code calls a kernel without the dispatcher.

Inductor calls an operator in ``aot_inductor.custom_ops_to_c_shims`` by a C function whose
declaration is given as text. Inductor defines how each argument is passed, and the function's name:
``aoti_torch_<device>_<operator>``, without the namespace. The declarations here bind that name to a
symbol of opsmith's own, which is unique to this operator and this build of it.
"""

from __future__ import annotations

from pathlib import Path

from opsmith.compat.torch_inductor import function_name
from opsmith.kernels import adapters
from opsmith.kernels.adapters import Argument
from opsmith.signature import Signature

TEMPLATE = Path(__file__).with_name("shim.cpp.j2")
INCLUDE = Path(__file__).with_name("include")

# How inductor passes an argument, by its type in the kernel's struct. A sequence is followed by its
# count.
_PASSED = {
    "const opsmith::DLTensor*": "AtenTensorHandle",
    "opsmith::DLTensor*": "AtenTensorHandle",
    "opsmith::raw_tensors": "const AtenTensorHandle*",
    "opsmith::written_tensors": "const AtenTensorHandle*",
    "opsmith::raw_string": "const char*",
    "opsmith::raw_ints": "const int64_t*",
    "opsmith::raw_floats": "const double*",
    "opsmith::raw_bools": "const int32_t*",
    "opsmith::raw_optional_int": "int64_t",
    "opsmith::raw_optional_float": "double",
    "opsmith::raw_optional_bool": "int32_t",
    "int64_t": "int64_t",
    "double": "double",
    "uint8_t": "int32_t",
}


def symbol(signature: Signature, device: str, tag: str) -> str:
    """Return the symbol that the shim's library exports.

    Args:
        tag: identifier of this build of the kernel.
    """
    return f"opsmith_shim__{signature.namespace}__{signature.name}__{device}__{tag}"


def declaration(signature: Signature, device: str, tag: str) -> str:
    """Return the C declaration for ``custom_ops_to_c_shims``."""
    types = [
        type_ for argument in adapters.arguments_of(signature) for type_, _ in _passed(argument)
    ]
    types += ["AtenTensorHandle*"] * len(signature.results)
    if not signature.results:
        types.append("void*")  # Inductor passes a null pointer in place of the result.
    function = function_name(signature.qualname, device)
    return (
        f"AOTITorchError {function}({', '.join(types)}) "
        f"__asm__({adapters.quote(symbol(signature, device, tag))})"
    )


def source(signature: Signature, device: str, strided: bool | tuple[str, ...], tag: str) -> str:
    """Generate the C++ source that defines the shim around the kernel's entry point.

    Args:
        strided: whether the kernel accepts tensors of any strides: all, or those named.
        tag: identifier of this build of the kernel; see `symbol`.
    """
    passed = {a.name: _passed(a) for a in adapters.arguments_of(signature)}
    given = [pair for pairs in passed.values() for pair in pairs]
    given += [("AtenTensorHandle*", f"ret_{result.name}") for result in signature.results]
    if not signature.results:
        given.append(("[[maybe_unused]] void*", "ret_none"))
    return adapters.source(
        TEMPLATE,
        signature,
        device,
        strided=strided,
        symbol=symbol(signature, device, tag),
        given={name: [local for _, local in pairs] for name, pairs in passed.items()},
        declared=[f"{type_} {local}" for type_, local in given],
        passed=[local for _, local in given],
    )


def _passed(argument: Argument) -> list[tuple[str, str]]:
    """Return the C types and names by which compiled code passes an argument."""
    type_, given = _PASSED[argument.type], f"in_{argument.name}"
    if argument.optional:
        type_ = f"{type_}*" if type_.startswith("const ") else f"const {type_}*"
    several = argument.parameter.is_tensor_list or argument.parameter.is_sequence
    return [(type_, given), *([("int64_t", f"{given}_count")] if several else [])]
