"""Write the names, dtypes and expressions of a declaration in C++, and the symbols of kernels."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from opsmith.signature.dtypes import ALL_DTYPES, COMPLEX, FLOAT8, INTEGRAL
from opsmith.signature.model import Signature
from opsmith.signature.sizes import expressions
from opsmith.signature.sizes.expressions import Binary, Call, Expression, Integer, Name, Scalar

ELEMENT_TYPES = {
    "bool": "bool",
    "float16": "opsmith::half",
    "float32": "float",
    "float64": "double",
    **{name: f"{name}_t" for name in INTEGRAL},
    **{name: f"opsmith::{name}" for name in ("bfloat16", *COMPLEX, *FLOAT8)},
}

KEYWORDS = frozenset(
    """alignas alignof and_eq asm auto bitand bitor bool case catch char char8_t char16_t char32_t
    compl concept const consteval constexpr constinit const_cast co_await co_return co_yield
    decltype default delete do double dynamic_cast enum explicit export extern false float friend
    goto inline int long mutable namespace new noexcept not_eq nullptr operator or_eq private
    protected public register reinterpret_cast requires short signed sizeof static static_assert
    static_cast struct switch template this thread_local throw true try typedef typeid typename
    union unsigned using virtual void volatile wchar_t xor xor_eq""".split()
)
"""Keywords of C++ that are not keywords of Python."""

# Words that cannot name a member of a struct: keywords and macros.
_NO_MEMBERS = KEYWORDS | set("NULL EOF errno assert signbit isnan isinf".split())


def identifier(name: str) -> str:
    """Return `name` as a member of a C++ struct: a keyword or macro gets an underscore."""
    return f"{name}_" if name in _NO_MEMBERS else name


def enumerator(text: str) -> str:
    """Return the C++ enumerator for a value of a string argument: ``nearest_exact``."""
    word = re.sub(r"\W", "_", text, flags=re.ASCII) or "empty"
    return identifier(f"_{word}" if word[0].isdigit() else word)


def quote(text: str) -> str:
    """Return `text` as a C++ string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def floating(value: float) -> str:
    """Return `value` as a C++ double."""
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "HUGE_VAL" if value > 0 else "-HUGE_VAL"
    return repr(value)


def dtype(name: str) -> str:
    """Return the ``DLDataType`` of a dtype, as a C++ expression."""
    return f"opsmith::detail::dtype_traits<{ELEMENT_TYPES[name]}>::value"


def dtype_bits(names: tuple[str, ...]) -> int:
    """Return a set of dtypes as bits, in the positions of `dtype_bit` in detail/dtypes.h."""
    return sum(1 << ALL_DTYPES.index(name) for name in names)


_FUNCTIONS = {"+": "add", "-": "sub", "*": "mul", "//": "div", "%": "mod"}


def expression(
    value: Expression, dim: Callable[[str], str], scalar: Callable[[str, int | None], str]
) -> str:
    """Return `value` as a C++ expression that throws on overflow and on division by zero.

    Args:
        value: the expression.
        dim: returns the C++ text of a dimension.
        scalar: returns the C++ text of an int argument, or of one element of a sequence.
    """
    match value:
        case Integer(number):
            return f"int64_t{{{number}}}"
        case Name(name):
            return dim(name)
        case Scalar(parameter, index):
            return scalar(parameter, index)
        case Binary(op, left, right):
            first, second = expression(left, dim, scalar), expression(right, dim, scalar)
            return f"detail::{_FUNCTIONS[op]}({first}, {second})"
        case Call(function, arguments):
            result = expression(arguments[0], dim, scalar)
            for argument in arguments[1:]:
                result = f"std::{function}<int64_t>({result}, {expression(argument, dim, scalar)})"
            return result
    raise AssertionError(expressions.text(value))


def raw_type(signature: Signature) -> str:
    """Return the name of the plain C struct of a call's arguments."""
    return f"{signature.namespace}__{signature.name}_raw"


def _symbol(what: str, signature: Signature, device: str) -> str:
    return f"opsmith_{what}__{signature.namespace}__{signature.name}__{device}"


def entry_symbol(signature: Signature, device: str) -> str:
    """Return the symbol of the kernel's entry point."""
    return _symbol("kernel", signature, device)


def calls_symbol(signature: Signature, device: str) -> str:
    """Return the symbol of the counter of the kernel's calls, a ``uint64_t``."""
    return _symbol("calls", signature, device)


def dtypes_symbol(signature: Signature, device: str) -> str:
    """Return the symbol of the function that names the kernel's element types."""
    return _symbol("dtypes", signature, device)


def register_symbol(signature: Signature, device: str) -> str:
    """Return the symbol of the function that registers the kernel with PyTorch."""
    return _symbol("torch_register", signature, device)


def unregister_symbol(signature: Signature, device: str) -> str:
    """Return the symbol of the function that undoes the registration."""
    return _symbol("torch_unregister", signature, device)


def arguments_symbol(signature: Signature) -> str:
    """Return the symbol of the stand-alone function that validates arguments."""
    return f"opsmith_arguments__{signature.namespace}__{signature.name}"
