"""Write an operator's Python texts: its signature, its docstring, its part of the ``.pyi``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from opsmith.signature import (
    NO_DEFAULT,
    Parameter,
    Result,
    ScalarType,
    SequenceType,
    Signature,
    TensorListType,
    TensorType,
)

_SCALARS = {"int": "integer", "float": "floating", "bool": "boolean", "str": "text"}
_SEQUENCES = {"int": "integers", "float": "floats", "bool": "booleans"}

STUB_HEAD = '''\
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar

class Array(Protocol):
    """Whatever has DLPack: an array of NumPy, JAX or CuPy, a tensor of PyTorch, ..."""

    @property
    def __dlpack__(self) -> Callable[..., Any]: ...
    @property
    def __dlpack_device__(self) -> Callable[..., Any]: ...

_Array = TypeVar("_Array", bound=Array)
'''


def kind(parameter: Parameter) -> str:
    """Return the parameter's kind: an enumerator of ``Kind`` in host.h."""
    match parameter.type:
        case TensorType():
            return "tensor"
        case TensorListType():
            return "tensors"
        case ScalarType(kind):
            return _SCALARS[kind]
        case SequenceType(kind):
            return _SEQUENCES[kind]
    raise AssertionError(parameter.type)


def docstring(signature: Signature, attribute: str) -> str:
    """Return the text for ``help``; it begins with the signature as `inspect` reads it."""
    shown = ", ".join(in_order(signature, lambda p: _with_default(p.name, p)))
    return f"{attribute}({shown})\n--\n\n{_body(signature)}"


def stub(signature: Signature, attribute: str) -> str:
    """Return the function's part of the ``.pyi``."""
    shown = ", ".join(
        in_order(
            signature, lambda p: _with_default(f"{p.name}: {_hint(signature, p)}", p, spaced=True)
        )
    )
    indented = "\n".join(
        f"    {line}" if line else "" for line in _body(signature).strip().splitlines()
    )
    quoted = indented.replace("\\", "\\\\").replace('"""', r"\"\"\"")
    return (
        f"def {attribute}({shown}) -> {_returned(signature)}:\n"
        f'    """{quoted.lstrip()}\n    """\n    ...\n'
    )


def in_order(signature: Signature, show: Callable[[Parameter], str]) -> list[str]:
    """Return the parameters in Python's order: required after a default means keyword-only."""
    positional: list[str] = []
    keywords: list[str] = []
    optional = False
    for parameter in signature.parameters:
        required = parameter.default is NO_DEFAULT
        optional = optional or not required
        by_name = parameter.keyword_only or (optional and required)
        (keywords if by_name else positional).append(show(parameter))
    return [*positional, *(["*", *keywords] if keywords else [])]


def _with_default(text: str, parameter: Parameter, spaced: bool = False) -> str:
    if parameter.default is NO_DEFAULT:
        return text
    equals = " = " if spaced else "="
    return f"{text}{equals}{_literal(parameter.default)}"


def with_default(parameter: Parameter) -> str:
    """Return a parameter of a Python function, with its default as source."""
    if parameter.default is NO_DEFAULT:
        return parameter.name
    return f"{parameter.name}={source(parameter.default)}"


def source(value: Any) -> str:
    """Return a default as Python source."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, list | tuple):
        items = ", ".join(map(source, value))
        return f"({items},)" if len(value) == 1 else f"({items})"
    return repr(value)


def _literal(value: Any) -> str:
    """Return a default in the form that `inspect` reads, which accepts only literals."""
    return (
        source(value)
        .replace('float("inf")', "1e999")
        .replace('float("-inf")', "-1e999")
        .replace('float("nan")', "...")
    )


def _body(signature: Signature) -> str:
    """Return the author's docstring, which may have any sections, then the declaration."""
    lines = [
        signature.doc.strip() or f"The operator {signature.qualname}.",
        "",
        "Declared as::",
        "",
        f"    {signature.qualname}(",
        *(f"        {line}," for line in _declared(signature)),
        f"    ) -> {', '.join(str(result.type) for result in signature.results) or None}",
    ]
    return "\n".join(lines) + "\n"


def _declared(signature: Signature) -> Iterator[str]:
    star = False
    for parameter in signature.parameters:
        if parameter.keyword_only and not star:
            star = True
            yield "*"
        yield f"{parameter.name}: {_described(parameter)}"


def _described(parameter: Parameter) -> str:
    text = parameter.annotation or str(parameter.type)
    default = "" if parameter.default is NO_DEFAULT else f" = {parameter.default!r}"
    return f"{text}{default}{' (written into)' if parameter.mutated else ''}"


def _hint(signature: Signature, parameter: Parameter) -> str:
    generic = "_Array" if _source(signature) is parameter else "Array"
    match parameter.type:
        case TensorType():
            hint = generic
        case TensorListType():
            hint = f"list[{generic}] | tuple[{generic}, ...]"
        case ScalarType(kind, choices):
            hint = f"Literal[{', '.join(map(repr, choices))}]" if choices else kind
        case SequenceType(kind):
            hint = f"Sequence[{kind}]"
    return f"{hint} | None" if parameter.optional else hint


def _source(signature: Signature) -> Parameter | None:
    """Return the parameter whose array type the results share, if a stub can express that."""
    first = next(iter(signature.tensors), None)
    if first is None or first.optional:
        return None
    return first if any(_alike(signature, first, one) for one in signature.results) else None


def _alike(signature: Signature, parameter: Parameter, result: Result) -> bool:
    """Return whether a result has the parameter's dtype, and so possibly its array type."""
    ours, theirs = parameter.tensor_type, result.tensor_type
    if ours is None or ours.shape is None or theirs.shape is None:
        return False
    dtypes = signature.generic.names if signature.generic is not None else (None,)
    return all(signature.dtype_in(ours, one) == signature.dtype_in(theirs, one) for one in dtypes)


def _returned(signature: Signature) -> str:
    source = _source(signature)
    hints: Sequence[str] = [
        "_Array" if source is not None and _alike(signature, source, result) else "Any"
        for result in signature.results
    ]
    if not hints:
        return "None"
    return hints[0] if len(hints) == 1 else f"tuple[{', '.join(hints)}]"
