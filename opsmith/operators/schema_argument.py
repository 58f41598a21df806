"""Combine a hand-written schema, as for ``torch.library.custom_op``, with the annotations."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from opsmith.compat.torch_dispatch import parse_schema
from opsmith.errors import DeclarationError
from opsmith.signature import Signature, hints

_SCALARS: dict[str, Any] = {
    "Tensor": Tensor,
    "int": int,
    "SymInt": int,
    "float": float,
    "bool": bool,
    "str": str,
}


def annotated(function: Callable[..., Any], qualname: str, schema: str) -> Callable[..., Any]:
    """Return `function` for `signature_of`, with the schema's types where it has no annotations.

    Args:
        function: the reference; it is not changed.
        qualname: ``namespace::name``.
        schema: ``"(Tensor x, int k=1) -> Tensor"``, without the name.

    Raises:
        DeclarationError: the schema does not parse, its parameters differ from the function's, or
            opsmith does not support one of its types.
    """
    parsed = _parsed(qualname, schema)
    own = hints.resolve(function, functools.partial(_refuse, qualname))
    parameters = list(inspect.signature(function).parameters.values())
    names = [argument.name for argument in parsed.arguments]
    if [parameter.name for parameter in parameters] != names:
        _refuse(
            qualname,
            f"schema={schema!r} has the parameters ({', '.join(names)}), the function has "
            f"({', '.join(parameter.name for parameter in parameters)})",
        )
    complete = []
    for parameter, argument in zip(parameters, parsed.arguments, strict=True):
        default = parameter.default
        if default is inspect.Parameter.empty and argument.has_default_value():
            default = argument.default_value
        hint = own.get(parameter.name)
        if parameter.name not in own:
            hint = _hint(qualname, argument.type, argument.N)
        complete.append(parameter.replace(annotation=hint, default=default))
    returns = tuple(_hint(qualname, result.type, None) for result in parsed.returns)
    result = returns[0] if len(returns) == 1 else tuple[returns] if returns else None  # type: ignore[valid-type]

    def declared() -> None: ...

    functools.update_wrapper(declared, function)
    declared.__annotations__ = {p.name: p.annotation for p in complete}
    declared.__annotations__["return"] = own.get("return", result)
    declared.__signature__ = inspect.Signature(complete)  # type: ignore[attr-defined]
    return declared


def refuse_others(signature: Signature, schema: str) -> None:
    """Refuse a schema that differs from the declaration's.

    Raises:
        DeclarationError: the schemas differ; the message shows both.
    """
    theirs = _parsed(signature.qualname, schema)
    ours = parse_schema(f"{signature.namespace}::{signature.schema()}")
    if _facts(theirs) != _facts(ours):
        raise DeclarationError(
            f"{signature.qualname}: the schema differs from the declaration's.\n"
            f"  schema=:     {theirs}\n  declaration: {ours}"
        )


def _parsed(qualname: str, schema: str) -> Any:
    try:
        return parse_schema(qualname + schema)
    except RuntimeError as error:
        first = str(error).strip().splitlines()[0]
        return _refuse(qualname, f"schema={schema!r} does not parse: {first}")


def _facts(schema: Any) -> Any:
    def text(type_: Any) -> str:
        return str(type_).replace("SymInt", "int")

    def writes(argument: Any) -> bool:
        return argument.alias_info is not None and argument.alias_info.is_write

    arguments = [(a.name, text(a.type), a.N, a.kwarg_only, writes(a)) for a in schema.arguments]
    return arguments, [text(result.type) for result in schema.returns]


def _hint(qualname: str, type_: Any, length: int | None) -> Any:
    kind = type_.kind()
    if kind == "OptionalType":
        return _hint(qualname, type_.getElementType(), length) | None
    if kind == "ListType":
        element = _hint(qualname, type_.getElementType(), None)
        if length:
            return tuple[(element,) * length]  # type: ignore[misc]
        return list[Tensor] if element is Tensor else Sequence[element]  # type: ignore[valid-type]
    found = _SCALARS.get(str(type_))
    if found is None:
        _refuse(qualname, f"the schema has the type {type_}, which operators do not take here")
    return found


def _refuse(qualname: str, message: str) -> Any:
    raise DeclarationError(f"{qualname}: {message}")
