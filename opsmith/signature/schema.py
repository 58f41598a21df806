"""The PyTorch schema of a signature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opsmith.signature.parameters import (
    NO_DEFAULT,
    Parameter,
    Result,
    ScalarType,
    SequenceType,
    TensorListType,
    TensorType,
)

# Sizes may be symbolic while tracing, so every int is declared as SymInt.
_KINDS = {"int": "SymInt", "float": "float", "bool": "bool", "str": "str"}


def schema_of(name: str, parameters: Sequence[Parameter], results: Sequence[Result]) -> str:
    """Return the schema: ``name(Tensor x, SymInt[3] size, *, float scale=1.0) -> Tensor``."""
    arguments: list[str] = []
    aliases = iter("abcdefghijklmnopqrstuvwxyz")
    starred = False
    for parameter in parameters:
        if parameter.keyword_only and not starred:
            arguments.append("*")
            starred = True
        arguments.append(_argument(parameter, next(aliases) if parameter.mutated else None))
    returned = [_result(result) for result in results]
    returns = returned[0] if len(returned) == 1 else f"({', '.join(returned)})"
    return f"{name}({', '.join(arguments)}) -> {returns}"


def _result(result: Result) -> str:
    return "Tensor[]" if isinstance(result.type, TensorListType) else "Tensor"


def _argument(parameter: Parameter, alias: str | None) -> str:
    mark = f"({alias}!)" if alias else ""
    match parameter.type:
        case TensorType():
            text = f"Tensor{mark}"
        case TensorListType():
            text = f"Tensor{mark}[]"
        case ScalarType(kind):
            text = _KINDS[kind]
        case SequenceType(kind, length):
            # Only a sequence of ints may carry its length: the schema language lets one int stand
            # for all of them there, and refuses a length for the other kinds.
            text = f"{_KINDS[kind]}[{length if length and kind == 'int' else ''}]"
    if parameter.optional:
        text += "?"
    text = f"{text} {parameter.name}"
    if parameter.default is not NO_DEFAULT:
        text += f"={_default(parameter.default)}"
    return text


def _default(value: Any) -> str:
    match value:
        case str():
            escaped = value.replace("\\", "\\\\").replace('"', '\\"')
            return f'"{escaped}"'
        case list() | tuple():
            return f"[{', '.join(_default(item) for item in value)}]"
        case _:
            return repr(value)
