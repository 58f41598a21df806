"""Find the arguments that other arguments depend on."""

from __future__ import annotations

from opsmith.signature import Parameter, Signature
from opsmith.signature.sizes import expressions
from opsmith.signature.sizes.shapes import Fixed


def reads_of(parameter: Parameter) -> frozenset[str]:
    """Return the other tensors that the constraints on this tensor's values refer to."""
    return frozenset(name for constraint in parameter.constraints for name in constraint.reads)


def readers_last(signature: Signature) -> list[Parameter]:
    """Return the tensors, each after the tensors that its constraints refer to."""
    ordered: list[Parameter] = []

    def add(parameter: Parameter) -> None:
        if parameter not in ordered:
            for name in sorted(reads_of(parameter)):
                add(signature.by_name[name])
            ordered.append(parameter)

    for parameter in signature.tensors:
        add(parameter)
    return ordered


def scalars_in_shapes(signature: Signature) -> frozenset[str]:
    """Return the names of the scalar arguments that decide a size."""
    found = set()
    for owner in signature.owners:
        for dim in owner.dims:
            if isinstance(dim, Fixed):
                found |= {scalar.parameter for scalar in expressions.scalars_of(dim.expression)}
    return frozenset(found)
