"""Batch calls for vmap: fold the batch into a parallel dimension where the declaration has one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from opsmith.signature.model import Signature
from opsmith.signature.solving.folding import Fold, fold
from opsmith.targets.jax.package.arguments import Arrays

Call = Callable[[Arrays], tuple[Any, ...]]


def batched(signature: Signature, call: Call) -> Call:
    """Return `call` with a batching rule.

    Args:
        signature: signature of the operator.
        call: accepts a call's arrays, and returns its results.
    """
    function = jax.custom_batching.custom_vmap(call)

    @function.def_vmap
    def rule(size: int, in_batched: Any, arrays: Arrays) -> tuple[Any, Any]:
        (marks,) = in_batched
        named = zip(signature.tensors, marks, strict=True)
        names = [parameter.name for parameter, mark in named if _any(mark)]
        along = None if signature.mutated else fold(signature, names)
        if along is None or size == 0:
            results = _one_by_one(function, marks, arrays)
        else:
            results = _folded(signature, function, along, size, names, arrays)
        return results, jax.tree.map(lambda _: True, results)

    return function


def _any(mark: Any) -> bool:
    return any(mark) if isinstance(mark, tuple) else bool(mark)


def _one_by_one(call: Call, marks: Any, arrays: Arrays) -> tuple[Any, ...]:
    """Make one call per sample, in a loop of XLA's."""
    leaves, structure = jax.tree.flatten(arrays)
    batch = jax.tree.leaves(marks)

    def sample(given: list[Any]) -> tuple[Any, ...]:
        rest = iter(given)
        values = [next(rest) if mark else leaf for leaf, mark in zip(leaves, batch, strict=True)]
        return call(jax.tree.unflatten(structure, values))

    moved = [leaf for leaf, mark in zip(leaves, batch, strict=True) if mark]
    results: tuple[Any, ...] = jax.lax.map(sample, moved)
    return results


def _folded(
    signature: Signature, call: Call, along: Fold, size: int, names: list[str], arrays: Arrays
) -> tuple[Any, ...]:
    def laid(name: str, value: Any) -> Any:
        axis = along.axes.get(name)
        if axis is None or value is None:
            return value
        if name in names:
            value = jnp.moveaxis(value, 0, axis)
        else:
            wide = (*value.shape[:axis], size, *value.shape[axis:])
            value = jnp.broadcast_to(jnp.expand_dims(value, axis), wide)
        if along.variadic:
            return value
        # A size of -1 is ambiguous if another size is 0.
        both = value.shape[axis] * value.shape[axis + 1]
        return value.reshape(*value.shape[:axis], both, *value.shape[axis + 2 :])

    tensors = zip(signature.tensors, arrays, strict=True)
    results = call(tuple(laid(parameter.name, value) for parameter, value in tensors))

    def opened(value: Any, axis: int) -> Any:
        if not along.variadic:
            sizes = (size, value.shape[axis] // size)
            value = value.reshape(*value.shape[:axis], *sizes, *value.shape[axis + 1 :])
        return jnp.moveaxis(value, axis, 0)

    return tuple(map(opened, results, along.out_axes))
