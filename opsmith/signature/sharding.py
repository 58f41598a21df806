"""Derive sharding rules from a declaration: what ranks compute on their parts without each other.

A rule is about one dimension of a device mesh, and has the words of PyTorch's DTensor: of each
tensor, a rank holds a `Shard`, or all of it (`Replicate`), or a `Partial` value, which the others
complete. On a mesh of several dimensions, any rule holds along each of them.

========================  ==========================================================================
claim                     rule
========================  ==========================================================================
``parallel_dims``         `Shard` wherever the dimension stands, `Replicate` elsewhere
``summed_dims``           the same, and results without the dimension are `Partial` sums
``linear_in``             `Partial` sums for the argument and for the results
none                      `Replicate` for all, which holds for every operator
========================  ==========================================================================

The gradient of a `Replicate` argument is a `Partial` sum, unless the results are replicated too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from opsmith.signature.constraints import Constraint, Order
from opsmith.signature.model import Signature
from opsmith.signature.parameters import Parameter, Result
from opsmith.signature.sizes import expressions
from opsmith.signature.sizes.expressions import Name
from opsmith.signature.sizes.shapes import Fixed, Shape, Variadic, bound_by


@dataclass(frozen=True)
class Shard:
    """A placement: each rank holds a part of the tensor along `axis`; negative from the end."""

    axis: int

    def __str__(self) -> str:
        return f"Shard({self.axis})"


@dataclass(frozen=True)
class Replicate:
    """A placement: each rank holds the whole tensor."""

    def __str__(self) -> str:
        return "Replicate()"


@dataclass(frozen=True)
class Partial:
    """A placement: each rank holds a tensor of full size, and the sum of all is the tensor."""

    def __str__(self) -> str:
        return "Partial()"


Placement = Shard | Replicate | Partial


@dataclass(frozen=True)
class ShardingRule:
    """Placements of a call's tensors with which every rank computes its part on its own.

    Attributes:
        claim: the part of the declaration that the rule follows from; empty for `Replicate` alone.
        arguments: the placement of each tensor argument.
        results: the placement of each result.
        variadic: the name of the variadic dimension that the axes are the first of; the rule then
            holds for each of its dimensions. Empty for a dimension of its own.
    """

    claim: str
    arguments: Mapping[str, Placement]
    results: tuple[Placement, ...]
    variadic: str = ""

    def gradient(self, argument: str) -> Placement:
        """Return the placement of an argument's gradient, computed by each rank on its own."""
        return gradient_placement(self.arguments[argument], self.results)

    def __str__(self) -> str:
        parts = {n: p for n, p in self.arguments.items() if not isinstance(p, Replicate)}
        taken = ", ".join(f"{name} {placement}" for name, placement in parts.items())
        given = ", ".join(map(str, self.results)) or "nothing"
        return f"{taken} → {given}"


def gradient_placement(argument: Placement, results: tuple[Placement, ...]) -> Placement:
    """Return the placement of the gradient of an argument, as each rank computes it on its own."""
    match argument:
        case Shard():
            return argument
        case Partial():
            return Replicate()
    return Replicate() if all(isinstance(r, Replicate) for r in results) else Partial()


def sharding_rules(signature: Signature) -> tuple[ShardingRule, ...]:
    """Return the rules that follow from a declaration; the first replicates every tensor."""
    names = [parameter.name for parameter in signature.tensors]
    whole = tuple(Replicate() for _ in signature.results)
    found = [ShardingRule("", dict.fromkeys(names, Replicate()), whole)]
    for claim, claimed in (
        ("parallel_dims", signature.parallel_dims),
        ("summed_dims", signature.summed_dims),
    ):
        for dim in claimed:
            if claim == "parallel_dims" and dim in signature.summed_dims:
                continue
            if obstacle_to_sharding(signature, dim) is None:
                found.append(_along(signature, claim, dim))
    for group in signature.linear_in:
        if obstacle_to_parts(signature, group) is None:
            placements = {n: Partial() if n in group else Replicate() for n in names}
            parts = tuple(Partial() for _ in signature.results)
            found.append(ShardingRule(f"linear_in={_shown(group)}", placements, parts))
    return tuple(found)


def _shown(group: tuple[str, ...]) -> str:
    written = ", ".join(f'"{name}"' for name in group)
    return f"({written},)" if len(group) == 1 else f"(({written}),)"


def _along(signature: Signature, claim: str, dim: str) -> ShardingRule:
    name = dim.removeprefix("*")

    def placed(owner: Parameter | Result, otherwise: Placement) -> Placement:
        axes = _axes(owner.shape, name)
        return Shard(axes[0]) if axes else otherwise

    rest = Partial() if claim == "summed_dims" else Replicate()
    return ShardingRule(
        f'{claim}=("{dim}",)',
        {parameter.name: placed(parameter, Replicate()) for parameter in signature.tensors},
        tuple(placed(result, rest) for result in signature.results),
        name if name in signature.variadic_dims else "",
    )


def _axes(shape: Shape | None, name: str) -> list[int]:
    """Return the axes at which a dimension stands in a shape; negative after a variadic one."""
    return [
        axis
        for axis, dim in (shape.axes() if shape is not None else ())
        if (isinstance(dim, Fixed) and dim.expression == Name(name))
        or (isinstance(dim, Variadic) and dim.name == name)
    ]


def obstacle_to_sharding(signature: Signature, dim: str) -> str | None:
    """Return why ranks cannot each hold a part of a dimension, as a clause; `None` if they can.

    Args:
        dim: the dimension, as `parallel_dims` or `summed_dims` names it.
    """
    name = dim.removeprefix("*")
    for owner in signature.owners:
        if len(_axes(owner.shape, name)) > 1:
            return f"{owner.name!r} has {dim} twice, and ranks hold parts along one axis"
        for one in owner.computed:
            if name in expressions.names(one):
                return (
                    f"the dimension {expressions.text(one)} of {owner.name!r} is computed from "
                    f"{dim}, and its parts would not be those of {dim}"
                )
    for parameter in signature.parameters:
        for constraint in parameter.constraints:
            reason = _forbids(parameter, constraint, name)
            if reason is not None:
                return reason
    for condition in signature.conditions:
        if name in condition.dims:
            return f"the size of a part need not satisfy {condition.text}"
    if signature.data_dependent:
        return f"the size of {signature.data_dependent[0]} depends on values, and ranks may differ"
    if not signature.shaped:
        return "no shape of the results is declared"
    summed = dim in signature.summed_dims
    for result in signature.results:
        if not (_axes(result.shape, name) or summed):
            return (
                f"the result {result.name!r} has no dimension {dim}; if it is the sum over parts "
                f'of {dim}, claim summed_dims=("{dim}",)'
            )
    for parameter in signature.mutated:
        if not _axes(parameter.shape, name):
            return f"every rank would write the whole of {parameter.name!r}, which has no {dim}"
    return None


def _forbids(parameter: Parameter, constraint: Constraint, name: str) -> str | None:
    for expression in constraint.expressions():
        if name in expressions.names(expression):
            return (
                f"the values of {parameter.name!r} are compared with "
                f"{expressions.text(expression)}, which would be smaller in a part"
            )
    # Every part of a sorted line is sorted.
    if isinstance(constraint, Order) or not constraint.along:
        return None
    if name in bound_by(parameter.dims[-constraint.along :]):
        return (
            f"the values of {parameter.name!r} fit together along {name}, and those of a part need "
            "not"
        )
    return None


def obstacle_to_parts(signature: Signature, group: tuple[str, ...]) -> str | None:
    """Return why ranks cannot each hold a summand of arguments, as a clause; `None` if they can."""
    for name in group:
        if signature.by_name[name].constraints:
            return f"the values of {name!r} have a range, and the summands of a value need not fit"
    return None


def unsharded(signature: Signature) -> list[tuple[list[str], str]]:
    """Return what no rule places in parts, with the reason as a clause.

    Returns:
        The dimensions, or groups of arguments, for each reason.
    """
    found: dict[str, list[str]] = {}
    claimed = {one.removeprefix("*") for one in (*signature.parallel_dims, *signature.summed_dims)}
    for name in signature.dims:
        shown = f"*{name}" if name in signature.variadic_dims else name
        reason = obstacle_to_sharding(signature, shown)
        if name not in claimed and (reason is None or "claim " in reason):
            reason = "neither parallel_dims nor summed_dims claims that slices are independent"
        if reason is not None:
            found.setdefault(reason, []).append(shown)
    for group in signature.linear_in:
        reason = obstacle_to_parts(signature, group)
        if reason is not None:
            found.setdefault(reason, []).append(" and ".join(group))
    return [(names, reason) for reason, names in found.items()]
