"""Batching rules: derived from `parallel_dims` where possible, else one call per sample."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from opsmith.errors import OpsmithError
from opsmith.operators.core.arguments import describe
from opsmith.operators.core.operator import Operator
from opsmith.operators.dispatch.fake import check_size, empty_results
from opsmith.signature import Bindings, Result, Signature, TensorInfo, TensorListType, bind
from opsmith.signature.calls import named
from opsmith.signature.sizes.shapes import show_sizes
from opsmith.signature.solving.folding import Fold, fold as fold_of
from opsmith.untyped import Arguments, Untyped, Value


def batching_rule(operator: Operator) -> Callable[..., Value]:
    """Return the rule for ``torch.library.register_vmap`` that follows from the declaration.

    If the operator treats each slice along a parallel dimension separately, the batch is folded
    into that dimension, and the operator is called once. Otherwise the operator is called once per
    sample, which is correct for every operator.
    """
    signature = operator.signature
    arguments_of = named(signature)

    def rule(info: Untyped, in_dims: Sequence[object], *args: object, **kwargs: object) -> object:
        if signature.mutated:
            mutated = ", ".join(repr(parameter.name) for parameter in signature.mutated)
            raise OpsmithError(
                f"{signature.qualname}: mutates {mutated}, and vmap of a mutating operator has no "
                "rule; write one with register_vmap."
            )
        batched = _batched(signature, in_dims)
        arguments = arguments_of(args, kwargs)
        if not info.batch_size:
            return _empty(signature, arguments, batched)
        fold = fold_of(signature, batched)
        if fold is None:
            return _one_by_one(operator, info.batch_size, arguments, batched)
        # Validate a single sample first: invalid arguments may look valid after folding.
        _bound(signature, arguments, batched)
        return _folded(operator, fold, info.batch_size, arguments, batched)

    return rule


def checked_rule(signature: Signature, function: Callable[..., object]) -> Callable[..., object]:
    """Return an author's batching rule with a check that each sample fits the signature."""
    arguments_of = named(signature)

    @functools.wraps(function)
    def rule(info: object, in_dims: Sequence[object], *args: object, **kwargs: object) -> object:
        _bound(signature, arguments_of(args, kwargs), _batched(signature, in_dims))
        return function(info, in_dims, *args, **kwargs)

    return rule


def _batched(signature: Signature, in_dims: Sequence[object]) -> dict[str, object]:
    """Return the batch dimension of each argument that has a batch."""
    names = [parameter.name for parameter in signature.parameters]
    return {
        name: dim
        for name, dim in zip(names, in_dims, strict=False)
        if dim is not None and not (isinstance(dim, list) and all(d is None for d in dim))
    }


def _sample(value: Value, dim: object, index: int) -> object:
    if dim is None:
        return value
    if isinstance(dim, list | tuple):
        return [_sample(item, d, index) for item, d in zip(value, dim, strict=True)]
    return value.select(dim, index)


def _one_by_one(operator: Operator, size: int, arguments: Arguments, batched: Arguments) -> object:
    signature = operator.signature
    calls = [
        operator(**{n: _sample(value, batched.get(n), i) for n, value in arguments.items()})
        for i in range(size)
    ]
    if len(signature.results) == 1:
        return _stack(signature, signature.results[0], calls), 0
    stacked = tuple(
        _stack(signature, result, each)
        for result, each in zip(signature.results, zip(*calls, strict=True), strict=True)
    )
    return stacked, tuple(0 for _ in stacked)


def _stack(signature: Signature, result: Result, samples: Sequence[Value]) -> object:
    """Stack one result of all samples along a new first dimension; a list, tensor by tensor."""
    many = isinstance(result.type, TensorListType)
    lists = samples if many else [[sample] for sample in samples]
    shapes = [[tuple(tensor.shape) for tensor in sample] for sample in lists]
    for position, found in enumerate(shapes):
        if found != shapes[0]:
            first, other = (_shapes_text(one, many=many) for one in (shapes[0], shapes[position]))
            raise OpsmithError(
                f"{signature.qualname}: vmap cannot stack the result {result.name!r}: it is "
                f"{first} for sample 0, and {other} for sample {position}. Call the operator once "
                "per sample."
            )
    stacked = [torch.stack(each) for each in zip(*lists, strict=True)]
    return stacked if many else stacked[0]


def _shapes_text(shapes: Sequence[tuple[int, ...]], *, many: bool) -> str:
    text = ", ".join(show_sizes(shape) for shape in shapes)
    return f"a list of {len(shapes)} ({text})" if many else f"of shape {text}"


def _empty(signature: Signature, arguments: Arguments, batched: Arguments) -> object:
    if not signature.shaped or signature.data_dependent:
        raise OpsmithError(f"{signature.qualname}: vmap over no samples needs declared shapes.")
    bindings = _bound(signature, arguments, batched)
    samples = empty_results(signature, bindings, arguments)
    made = [sample.new_empty((0, *sample.shape)) for sample in samples]
    return (made[0], 0) if len(made) == 1 else (tuple(made), tuple(0 for _ in made))


def _bound(signature: Signature, arguments: Arguments, batched: Arguments) -> Bindings:
    """Return what one sample fixes, or refuse it if its shapes, dtypes or scalars do not fit."""
    described = describe(arguments, signature)
    for name, dim in batched.items():
        info = described[name]
        described[name] = (
            [_without(item, axis) for item, axis in zip(info, dim, strict=True)]
            if isinstance(dim, list | tuple)
            else _without(info, dim)
        )
    return bind(signature, described, check_size)


def _without(info: TensorInfo, dim: int | None) -> TensorInfo:
    """Return the `TensorInfo` of one sample of a tensor."""
    if dim is None:
        return info
    shape = [size for axis, size in enumerate(info.shape) if axis != dim % len(info.shape)]
    return TensorInfo(shape, info.dtype, info.device)


def _folded(
    operator: Operator, fold: Fold, size: int, arguments: Arguments, batched: Arguments
) -> object:
    folded = dict(arguments)
    for name, axis in fold.axes.items():
        value = arguments[name]
        if value is not None:
            folded[name] = _laid(value, batched.get(name), axis, size, fold)
    returned = operator(**folded)
    many = (returned,) if len(fold.out_axes) == 1 else returned
    opened = tuple(
        value if fold.variadic else value.unflatten(axis, (size, value.shape[axis] // size))
        for value, axis in zip(many, fold.out_axes, strict=True)
    )
    if len(opened) == 1:
        return opened[0], fold.out_axes[0]
    return opened, fold.out_axes


def _laid(value: Tensor, batch: int | None, axis: int, size: int, fold: Fold) -> Tensor:
    if batch is None:
        value = value.unsqueeze(axis)
        value = value.expand(*value.shape[:axis], size, *value.shape[axis + 1 :])
    else:
        value = value.movedim(batch, axis)
    return value if fold.variadic else value.flatten(axis, axis + 1)
