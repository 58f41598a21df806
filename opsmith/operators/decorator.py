"""`opsmith.op`: turn a decorated function into an operator of the PyTorch dispatcher."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn, TypedDict, overload

import torch
from torch import Tensor
from typing_extensions import Unpack

from opsmith.compat.torch_dispatch import parse_schema
from opsmith.compat.torch_ops import is_written
from opsmith.errors import DeclarationError
from opsmith.operators.core import registry
from opsmith.operators.core.operator import P, R
from opsmith.operators.core.rule import Rule
from opsmith.operators.core.source_location import shown_path, warn_of_a_clash, where_written
from opsmith.operators.defined import DefinedOperator
from opsmith.signature import Signature, hints, signature_of
from opsmith.signature.suggestions import refuse_unknown_keywords
from opsmith.system.temporarily import uncollected
from opsmith.untyped import Hint, Untyped, Value

#: What a schema calls a type, and the annotation that stands for it.
_SCALARS: dict[str, Hint] = {
    "Tensor": Tensor,
    "int": int,
    "SymInt": int,
    "float": float,
    "bool": bool,
    "str": str,
}


class _Words(TypedDict, total=False):
    mutates_args: Iterable[str]
    data_dependent: Sequence[str]
    parallel_dims: Sequence[str]
    summed_dims: Sequence[str]
    linear_in: Sequence[str | Sequence[str]]
    where: Sequence[str]
    batch_invariant: Sequence[str]
    autograd: str | None
    device_types: str | Sequence[str] | None
    schema: str | None
    tags: Sequence[torch.Tag]


@overload
def op(
    qualname: str, function: None = None, /, **words: Unpack[_Words]
) -> Callable[[Callable[P, R]], DefinedOperator[P, R]]: ...


@overload
def op(
    qualname: str, function: Callable[P, R], /, **words: Unpack[_Words]
) -> DefinedOperator[P, R]: ...


@refuse_unknown_keywords(lambda qualname="", *_: f"{qualname or 'an operator'}: opsmith.op")
def op(
    qualname: str = "",
    function: Callable[..., object] | None = None,
    /,
    *,
    mutates_args: Iterable[str] = (),
    data_dependent: Sequence[str] = (),
    parallel_dims: Sequence[str] = (),
    summed_dims: Sequence[str] = (),
    linear_in: Sequence[str | Sequence[str]] = (),
    where: Sequence[str] = (),
    batch_invariant: Sequence[str] = (),
    autograd: str | None = None,
    device_types: str | Sequence[str] | None = None,
    schema: str | None = None,
    tags: Sequence[torch.Tag] = (),
) -> object:
    """Declare an operator; similar to ``torch.library.custom_op``.

    The decorated function's annotations are the declaration, its body is the reference.

    Args:
        qualname: ``namespace::name``.
        function: the reference; without it `op` is a decorator.
        mutates_args: names of the arguments that the operator writes into.
        data_dependent: names of result dimensions whose size depends on the tensors' values.
        parallel_dims: dimensions along which each slice is computed separately, as the author
            claims; rules for vmap and for DTensors follow from the claim, and checks test it.
        summed_dims: dimensions over which each result without them is the sum of the slices'
            results, as the author claims; results with them are computed slice by slice. Rules for
            DTensors follow from the claim, and checks test it.
        linear_in: arguments in which all results are linear, as the author claims. A tuple of names
            (``(("x", "y"),)``) claims that the results are linear in these arguments together, as a
            sum is. Rules for DTensors follow from the claim, and checks test it.
        where: conditions on sizes and int arguments that every call satisfies, such as
            ``"H % K == 0"``; other calls are refused. One condition may be written as a text.
        batch_invariant: those of `parallel_dims` along which a slice has the same bits whatever the
            batch around it and the number of threads, as the author claims; a check tests it.
        autograd: ``"reference"`` takes every derivative from the reference, which must then be
            differentiable PyTorch. In reverse mode, a hand-written backward takes precedence.
        device_types: the device types that the reference supports; all by default.
        schema: types for parameters without annotations: ``"(Tensor x, int k=1) -> Tensor"``. It
            must agree with the annotations that exist.
        tags: further ``torch.Tag`` s.

    Returns:
        An `Operator`.

    Raises:
        DeclarationError: an annotation is not supported; the message quotes it.

    Example:
        >>> import opsmith
        >>> from jaxtyping import Float
        >>> from torch import Tensor
        >>> @opsmith.op("docs::double", autograd="reference")
        ... def double(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        ...     return x * 2
        >>> double(torch.ones(2))
        tensor([2., 2.])
    """
    if callable(qualname) or not qualname:
        name = getattr(qualname, "__name__", "my_op")
        place = where_written(qualname)
        raise DeclarationError(
            f"{f'{name} ({shown_path(place)})' if place else 'an operator'}: opsmith.op needs the "
            f'operator\'s name, with a namespace of yours: write @opsmith.op("my_ops::{name}")'
        )
    declare = functools.partial(
        signature_of,
        mutates_args=mutates_args if isinstance(mutates_args, str) else tuple(mutates_args),
        data_dependent=data_dependent,
        parallel_dims=parallel_dims,
        summed_dims=summed_dims,
        linear_in=linear_in,
        where=where,
        batch_invariant=batch_invariant,
    )
    if function is None:
        return functools.partial(
            op,
            qualname,
            **declare.keywords,
            autograd=autograd,
            device_types=device_types,
            schema=schema,
            tags=tags,
        )
    with uncollected():
        if autograd not in (None, "reference"):
            raise DeclarationError(
                f'{qualname}: autograd={autograd!r} is not supported; use "reference", or '
                "register_autograd for a hand-written backward"
            )
        declared = function
        if schema is not None:
            declared = annotated(function, qualname, schema)
        signature = declare(declared, qualname)
        if schema is not None:
            refuse_others(signature, schema)
        for parameter in signature.tensors:
            if parameter.keyword_only:
                raise DeclarationError(
                    f"{qualname}: the tensor {parameter.name!r} is keyword-only, and PyTorch's "
                    "vmap and autograd pass tensors by position. Move it before the '*'."
                )
        earlier = registry.find(qualname)
        warn_of_a_clash(qualname, earlier and earlier.reference, function, stacklevel=5)
        kind = DefinedOperator
        if signature.drawn is not None:
            from opsmith.operators.drawing import DrawingOperator

            kind = DrawingOperator
        return kind(
            signature,
            function,
            rule=Rule(reference=autograd == "reference"),
            device_types=[device_types] if isinstance(device_types, str) else device_types,
            tags=tags,
        )


def annotated(function: Callable[..., Value], qualname: str, schema: str) -> Callable[..., Value]:
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
    own = hints.resolve(function, functools.partial(refuse, qualname))
    parameters = list(inspect.signature(function).parameters.values())
    names = [argument.name for argument in parsed.arguments]
    if [parameter.name for parameter in parameters] != names:
        refuse(
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


def _parsed(qualname: str, schema: str) -> Untyped:
    try:
        return parse_schema(qualname + schema)
    except RuntimeError as error:
        first = str(error).strip().splitlines()[0]
        return refuse(qualname, f"schema={schema!r} does not parse: {first}")


def _facts(schema: Untyped) -> object:
    def text(type_: object) -> str:
        return str(type_).replace("SymInt", "int")

    arguments = [(a.name, text(a.type), a.N, a.kwarg_only, is_written(a)) for a in schema.arguments]
    return arguments, [text(result.type) for result in schema.returns]


def _hint(qualname: str, type_: Untyped, length: int | None) -> Hint:
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
        refuse(qualname, f"the schema has the type {type_}, which operators do not take here")
    return found


def refuse(qualname: str, message: str) -> NoReturn:
    """Refuse a declaration, by the operator's name."""
    raise DeclarationError(f"{qualname}: {message}")
