"""Check what a declaration claims: parallel, summed and data-dependent dimensions, linearity."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from opsmith.signature.items import item_hint
from opsmith.signature.model import Signature
from opsmith.signature.sizes import expressions
from opsmith.signature.sizes.shapes import Fixed


def bound_dims(signature: Signature) -> str:
    """Return the dimensions that arguments bind, as messages list them."""
    return ", ".join(signature.dims) or "none"


def check_claims(signature: Signature, refuse: Callable[[str], NoReturn]) -> None:
    """Call `refuse` with the first claim that the declaration contradicts, if there is one."""
    used = {
        dim.expression.name
        for result in signature.results
        for dim in result.dims
        if isinstance(dim, Fixed) and isinstance(dim.expression, expressions.Name)
    }
    for name in signature.data_dependent:
        if name in signature.dim_sources:
            source = signature.dim_sources[name]
            refuse(f"data_dependent names {name!r}, but {source!r} binds it; take it out")
        if name not in used:
            refuse(f"data_dependent names {name!r}, which is a dimension of no result")
    for name in signature.parallel_dims:
        plain = name.removeprefix("*")
        _require_bound(signature, "parallel_dims", name, refuse)
        if plain not in used and plain not in signature.variadic_dims and signature.results:
            refuse(
                f"parallel_dims names {name!r}, which no result has as a dimension: the results "
                "of the slices could not be put together"
            )
    for name in signature.batch_invariant:
        if name not in signature.parallel_dims:
            refuse(
                f"batch_invariant names {name!r}, and parallel_dims does not: a slice that depends "
                "on others has other bits in another batch"
            )
    _sums(signature, refuse)


def _require_bound(
    signature: Signature, claim: str, name: str, refuse: Callable[[str], NoReturn]
) -> None:
    plain = name.removeprefix("*")
    if plain not in signature.dim_sources:
        refuse(
            f"{claim} names {name!r}, which no argument binds"
            f"{item_hint(signature, plain)}. Bound are: {bound_dims(signature)}"
        )


def _sums(signature: Signature, refuse: Callable[[str], NoReturn]) -> None:
    """Refuse `summed_dims` and `linear_in` that name nothing which may be a sum."""
    for name in signature.summed_dims:
        plain = name.removeprefix("*")
        _require_bound(signature, "summed_dims", name, refuse)
        without = [
            result
            for result in signature.results
            if result.shape and plain not in result.shape.binds()
        ]
        if not without:
            refuse(
                f"summed_dims names {name!r}, and no result is a sum over it; if each slice is "
                f'computed on its own, claim parallel_dims=("{name}",)'
            )
        for result in without:
            if result.tensor_type.dtypes.names == ("bool",):
                refuse(f"summed_dims names {name!r}, and the result {result.type} is no sum")
    for group in signature.linear_in:
        for name in group:
            parameter = signature.by_name.get(name)
            if parameter is None or parameter.tensor_type is None:
                there = ", ".join(p.name for p in signature.tensors) or "none"
                refuse(f"linear_in names {name!r}, which is no tensor argument; there are {there}")
            if parameter.mutated:
                refuse(f"linear_in names {name!r}, which the operator writes into")
            if not parameter.inexact:
                refuse(f"linear_in names {name!r}, and {parameter.type} is not floating point")
        for result in signature.results:
            if not result.inexact:
                refuse(
                    f"linear_in names {group[0]!r}, and the result {result.type} is not floating "
                    "point"
                )
