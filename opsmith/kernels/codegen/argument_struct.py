"""Generate the members of an operator's argument struct, one for each parameter."""

from __future__ import annotations

from dataclasses import dataclass

from opsmith.errors import DeclarationError
from opsmith.kernels.codegen.cpp_names import (
    ELEMENT_TYPES,
    KEYWORDS,
    dtype,
    enumerator,
    identifier,
    quote,
)
from opsmith.signature.model import Signature
from opsmith.signature.parameters import (
    Parameter,
    Result,
    ScalarType,
    SequenceType,
    TensorListType,
    TensorType,
)
from opsmith.signature.sizes.expressions import Name
from opsmith.signature.sizes.shapes import Fixed

_SCALARS = {
    "int": ("int64_t", "int64_t", "opsmith::raw_optional_int"),
    "float": ("double", "double", "opsmith::raw_optional_float"),
    "bool": ("uint8_t", "bool", "opsmith::raw_optional_bool"),
    "str": ("opsmith::raw_string", "std::string_view", "opsmith::raw_string"),
}
_SEQUENCES = {
    "int": ("opsmith::raw_ints", "int64_t", "int64_t"),
    "float": ("opsmith::raw_floats", "double", "double"),
    "bool": ("opsmith::raw_bools", "bool", "uint8_t"),
}


@dataclass(frozen=True)
class Member:
    """A member of the raw and of the typed struct.

    Attributes:
        raw_type: its type in the plain C struct.
        type: its type in the struct that kernels see.
        convert: the C++ expression that converts from `raw_type` to `type`.
    """

    name: str
    raw_type: str
    type: str
    convert: str
    comment: str


@dataclass(frozen=True)
class OutputMember:
    """A result that the kernel allocates itself."""

    name: str
    type: str
    position: int
    comment: str


@dataclass(frozen=True)
class ChoiceEnum:
    """The enum for a parameter with a choice of strings.

    Attributes:
        name: ``<op>_<parameter>``, in the operator's namespace.
        enumerators: one enumerator for each string, in order.
    """

    name: str
    enumerators: tuple[str, ...]
    comment: str


def choices_of(signature: Signature) -> list[ChoiceEnum]:
    """Return the enums of an operator."""
    return [
        ChoiceEnum(
            f"{signature.name}_{parameter.name}",
            tuple(map(enumerator, parameter.type.choices)),
            f"{parameter.name}: {parameter.type}",
        )
        for parameter in signature.parameters
        if isinstance(parameter.type, ScalarType) and parameter.type.choices
    ]


def is_dependent(signature: Signature, result: Result) -> bool:
    """Return whether the kernel allocates a result whose sizes the arguments do not decide."""
    shape = result.tensor_type.shape
    if shape is None:
        return True
    return any(
        isinstance(dim, Fixed)
        and isinstance(dim.expression, Name)
        and dim.expression.name in signature.data_dependent
        for dim in shape.dims
    )


def require_supported(signature: Signature) -> None:
    """Refuse a signature that C++ kernels do not support.

    Raises:
        DeclarationError: the message names the parameter or result, and a remedy.
    """
    for parameter in signature.parameters:
        if isinstance(parameter.type, SequenceType) and parameter.type.kind == "str":
            raise DeclarationError(
                f"{signature.qualname}: parameter '{parameter.name}: {parameter.annotation}': "
                "a C++ kernel cannot take a sequence of strings; pass one string, or ints that "
                "stand for them"
            )
    for choice in choices_of(signature):
        if len(set(choice.enumerators)) < len(choice.enumerators):
            raise DeclarationError(
                f"{signature.qualname}: parameter '{choice.comment}': in C++ the strings become "
                f"{', '.join(choice.enumerators)}, and two of them are the same; write others"
            )
        if choice.name == f"{signature.name}_args":
            raise DeclarationError(
                f"{signature.qualname}: parameter '{choice.comment}': in C++ its type would be "
                f"called {choice.name}, as the struct of all arguments is; rename the parameter"
            )
    for result in signature.results:
        if isinstance(result.type, TensorListType):
            raise DeclarationError(
                f"{signature.qualname}: a C++ kernel cannot return a list of tensors "
                f"({result.type}), since nothing says how many; declare each result"
            )
    if signature.name == signature.namespace:
        raise DeclarationError(
            f"{signature.qualname}: in C++ the function {signature.name!r} and the namespace "
            f"{signature.namespace!r} cannot share a name; rename one of them for a C++ kernel"
        )
    for word in (signature.namespace, signature.name):
        if word in KEYWORDS:
            raise DeclarationError(
                f"{signature.qualname}: {word!r} is a keyword of C++; choose another name for a "
                "C++ kernel"
            )


def template_parameters(signature: Signature) -> list[str]:
    """Return the template parameters of the argument struct, one for each dtype variable."""
    labels = [variable.label for variable in signature.dtype_variables]
    return ["OpsmithElement"] if len(labels) == 1 else [f"Opsmith{label}" for label in labels]


def template_letters(signature: Signature) -> list[str]:
    """Return names for the template parameters of a kernel, one for each dtype variable."""
    labels = [variable.label for variable in signature.dtype_variables]
    return ["T", *labels[1:]] if labels else []


def _is_complex(signature: Signature, type_: TensorType, position: int) -> bool:
    return signature.dtype_variables[position].is_complex(type_.dtypes)


def element_type(signature: Signature, type_: TensorType) -> str | None:
    """Return the C++ element type: a template parameter if calls choose it, `None` if unknown."""
    if type_.shape is None:
        return None
    position = signature.variable_position(type_)
    if position is None:
        return ELEMENT_TYPES[type_.dtypes.names[0]]
    element = template_parameters(signature)[position]
    return f"opsmith::complex<{element}>" if _is_complex(signature, type_, position) else element


def dlpack_dtype(signature: Signature, type_: TensorType) -> str:
    """Return the ``DLDataType`` of a tensor in a call, as a C++ expression."""
    position = signature.variable_position(type_)
    if position is None:
        return dtype(type_.dtypes.names[0])
    chosen = f"raw.opsmith_dtypes[{position}]"
    if _is_complex(signature, type_, position):
        return f"opsmith::detail::complex_dtype({chosen})"
    return chosen


def members_of(signature: Signature) -> list[Member]:
    """Return all members in order: parameters, results allocated before the call, dimensions."""
    found = [_parameter(signature, parameter) for parameter in signature.parameters]
    for result in signature.results:
        if not is_dependent(signature, result):
            element = element_type(signature, result.tensor_type)
            found.append(
                Member(
                    identifier(result.name),
                    "const opsmith::DLTensor*",
                    f"opsmith::Tensor<{element}>",
                    f"opsmith_raw.{identifier(result.name)}",
                    str(result.type),
                )
            )
    for dim in signature.dims:
        name = identifier(dim)
        star = "*" if dim in signature.variadic_dims else ""
        source = f"{star}{dim} of '{signature.dim_sources[dim]}'"
        if dim in signature.variadic_dims:
            found.append(
                Member(
                    name,
                    "opsmith::raw_ints",
                    "std::span<const int64_t>",
                    f"opsmith::detail::to_span(opsmith_raw.{name})",
                    source,
                )
            )
            continue
        certain = dim in signature.certain_dims
        comment = source if certain else f"{source}; -1 where it is absent"
        found.append(Member(name, "int64_t", "int64_t", f"opsmith_raw.{name}", comment))
    return found


def outputs_of(signature: Signature) -> list[OutputMember]:
    """Return the results that the kernel allocates."""
    found = []
    for position, result in enumerate(signature.results):
        if is_dependent(signature, result):
            element = element_type(signature, result.tensor_type)
            type_ = "opsmith::AnyOutput" if element is None else f"opsmith::Output<{element}>"
            comment = f"{result.type}; call allocate once"
            found.append(OutputMember(identifier(result.name), type_, position, comment))
    return found


def _parameter(signature: Signature, parameter: Parameter) -> Member:
    name = identifier(parameter.name)
    raw = f"opsmith_raw.{name}"
    comment = parameter.annotation or str(parameter.type)
    match parameter.type:
        case TensorType():
            type_ = _view(signature, parameter.type, parameter.mutated)
            return Member(name, "const opsmith::DLTensor*", type_, raw, comment)
        case TensorListType(element):
            view = _view(signature, element, parameter.mutated)
            return Member(name, "opsmith::raw_tensors", f"opsmith::List<{view}>", raw, comment)
        case ScalarType(_, choices) if choices:
            enum = f"{signature.name}_{parameter.name}"
            strings = ", ".join(map(quote, choices))
            function = "to_optional_choice" if parameter.optional else "to_choice"
            convert = f"opsmith::detail::{function}<{enum}>({raw}, {{{strings}}})"
            type_ = f"std::optional<{enum}>" if parameter.optional else enum
            return Member(name, "opsmith::raw_string", type_, convert, comment)
        case ScalarType(kind):
            raw_type, type_, optional = _SCALARS[kind]
            if parameter.optional:
                convert = f"opsmith::detail::to_optional({raw})"
                return Member(name, optional, f"std::optional<{type_}>", convert, comment)
            convert = {
                "bool": f"{raw} != 0",
                "str": f"opsmith::detail::to_string({raw})",
            }.get(kind, raw)
            return Member(name, raw_type, type_, convert, comment)
        case SequenceType(kind, length):
            raw_type, fixed, free = _SEQUENCES[kind]
            if length is None:
                type_, function = f"std::span<const {free}>", "to_span"
                optional_function = "to_optional_span"
            else:
                type_ = f"std::array<{fixed}, {length}>"
                function = f"to_array<{fixed}, {length}>"
                optional_function = f"to_optional_array<{fixed}, {length}>"
            if parameter.optional:
                function, type_ = optional_function, f"std::optional<{type_}>"
            return Member(name, raw_type, type_, f"opsmith::detail::{function}({raw})", comment)
    raise AssertionError(parameter)


def _view(signature: Signature, type_: TensorType, written: bool) -> str:
    element = element_type(signature, type_)
    if element is None:
        return "opsmith::AnyTensor"
    return f"opsmith::Tensor<{element}>" if written else f"opsmith::Tensor<const {element}>"
