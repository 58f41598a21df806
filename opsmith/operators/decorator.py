"""`opsmith.op`: turn a decorated function into an operator of the PyTorch dispatcher."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, overload

import torch

from opsmith.errors import DeclarationError
from opsmith.operators.core import registry
from opsmith.operators.core.operator import P, R
from opsmith.operators.core.rule import Rule
from opsmith.operators.core.source_location import shown_path, where_written
from opsmith.operators.defined import DefinedOperator
from opsmith.signature import signature_of
from opsmith.signature.suggestions import refuse_unknown_keywords
from opsmith.system.gc_pause import uncollected


@overload
def op(
    qualname: str,
    function: None = None,
    /,
    *,
    mutates_args: Iterable[str] = ...,
    data_dependent: Sequence[str] = ...,
    parallel_dims: Sequence[str] = ...,
    summed_dims: Sequence[str] = ...,
    linear_in: Sequence[str | Sequence[str]] = ...,
    where: Sequence[str] = ...,
    autograd: str | None = ...,
    device_types: str | Sequence[str] | None = ...,
    schema: str | None = ...,
    tags: Sequence[torch.Tag] = ...,
) -> Callable[[Callable[P, R]], DefinedOperator[P, R]]: ...


@overload
def op(
    qualname: str,
    function: Callable[P, R],
    /,
    *,
    mutates_args: Iterable[str] = ...,
    data_dependent: Sequence[str] = ...,
    parallel_dims: Sequence[str] = ...,
    summed_dims: Sequence[str] = ...,
    linear_in: Sequence[str | Sequence[str]] = ...,
    where: Sequence[str] = ...,
    autograd: str | None = ...,
    device_types: str | Sequence[str] | None = ...,
    schema: str | None = ...,
    tags: Sequence[torch.Tag] = ...,
) -> DefinedOperator[P, R]: ...


@refuse_unknown_keywords(lambda qualname="", *_: f"{qualname or 'an operator'}: opsmith.op")
def op(
    qualname: str = "",
    function: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: Iterable[str] = (),
    data_dependent: Sequence[str] = (),
    parallel_dims: Sequence[str] = (),
    summed_dims: Sequence[str] = (),
    linear_in: Sequence[str | Sequence[str]] = (),
    where: Sequence[str] = (),
    autograd: str | None = None,
    device_types: str | Sequence[str] | None = None,
    schema: str | None = None,
    tags: Sequence[torch.Tag] = (),
) -> Any:
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
    if function is None:
        return functools.partial(
            op,
            qualname,
            mutates_args=mutates_args,
            data_dependent=data_dependent,
            parallel_dims=parallel_dims,
            summed_dims=summed_dims,
            linear_in=linear_in,
            where=where,
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
            from opsmith.operators import schema_argument

            declared = schema_argument.annotated(function, qualname, schema)
        signature = signature_of(
            declared,
            qualname,
            mutates_args=mutates_args if isinstance(mutates_args, str) else tuple(mutates_args),
            data_dependent=data_dependent,
            parallel_dims=parallel_dims,
            summed_dims=summed_dims,
            linear_in=linear_in,
            where=where,
        )
        if schema is not None:
            schema_argument.refuse_others(signature, schema)
        for parameter in signature.tensors:
            if parameter.keyword_only:
                raise DeclarationError(
                    f"{qualname}: the tensor {parameter.name!r} is keyword-only, and PyTorch's "
                    "vmap and autograd pass tensors by position. Move it before the '*'."
                )
        _warn_of_a_clash(qualname, function)
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


def _warn_of_a_clash(qualname: str, function: Callable[..., Any]) -> None:
    """Warn if another module declared the operator before; a notebook may redeclare its own."""
    earlier = registry.find(qualname)
    if earlier is None or earlier.reference.__module__ in (function.__module__, "__main__"):
        return
    first, second = (
        f"{one.__module__} ({shown_path(where_written(one))})"
        for one in (earlier.reference, function)
    )
    warnings.warn(
        f"{qualname} was declared in {first} and is now declared again in {second}; "
        "the later one takes its place",
        stacklevel=5,
    )
