"""Partition calls among devices: each computes its part, where the declaration has a rule."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec

from opsmith.signature.model import Signature
from opsmith.signature.parameters import Parameter, Result
from opsmith.signature.sharding import obstacle_to_sharding
from opsmith.signature.sizes.expressions import Name
from opsmith.signature.sizes.shapes import Fixed, Variadic
from opsmith.targets.jax.package.arguments import Arrays, flat

#: A name for each dimension of an array. Dimensions with the same name are sharded alike.
_Factors = list[str]


def partitioned(
    signature: Signature, arrays: Arrays, outputs: Sequence[Any], call: Callable[..., Any]
) -> Callable[..., tuple[Any, ...]]:
    """Return `call` with a rule for the partitioner of XLA; `call` itself for one device.

    The rule has what PyTorch's ranks have: a dimension of `parallel_dims` is computed in parts, one
    of `summed_dims` too, with a sum over the devices, and all others are gathered.

    Args:
        outputs: shapes of the results, and of the new contents of arguments that it writes into.
        call: accepts the flat arrays of a device, and returns its results.
    """
    shared = _Shared(signature)
    if jax.device_count() == 1 or not shared.dims:
        return call
    tensors = list(zip(signature.tensors, arrays, strict=True))
    given = [
        shared.factors(parameter, item.ndim)
        for parameter, value in tensors
        for item in flat((value,))
    ]
    written = [p for p, value in tensors if p.mutated for _ in flat((value,))]
    owners: list[Parameter | Result] = [*signature.results, *written]
    returned = [
        shared.factors(owner, len(output.shape))
        for owner, output in zip(owners, outputs, strict=True)
    ]

    def partition(mesh: Any, arguments: Any, results: Any) -> Any:
        del results
        chosen = shared.chosen(given, arguments)

        def local(*parts: Any) -> tuple[Any, ...]:
            several = zip(call(*parts), returned, strict=True)
            return tuple(
                jax.lax.psum(value, axes) if (axes := shared.missing(own, chosen)) else value
                for value, own in several
            )

        return mesh, local, _places(mesh, returned, chosen), _places(mesh, given, chosen)

    def infer(mesh: Any, arguments: Any, results: Any) -> Any:
        del results
        return _places(mesh, returned, shared.chosen(given, arguments))

    function = custom_partitioning(lambda *parts: tuple(call(*parts)))
    every = list(dict.fromkeys(name for own in (*given, *returned) for name in own))
    function.def_partition(
        partition,
        infer,
        sharding_rule=f"{_text(given)} -> {_text(returned)}",
        need_replication_factors=tuple(name for name in every if not shared.has(name)),
        reduction_factors=tuple(name for name in every if shared.is_summed(name)),
    )
    made: Callable[..., tuple[Any, ...]] = function
    return made


class _Shared:
    """The dimensions of an operator that devices may have parts of."""

    def __init__(self, signature: Signature) -> None:
        claimed = dict.fromkeys((*signature.parallel_dims, *signature.summed_dims))
        free = [dim for dim in claimed if obstacle_to_sharding(signature, dim) is None]
        self.dims = {dim.removeprefix("*") for dim in free}
        self._sums = {dim.removeprefix("*") for dim in free if dim in signature.summed_dims}
        self._others = itertools.count()

    def factors(self, owner: Parameter | Result, rank: int) -> _Factors:
        """Return a name for each dimension of an array; equal names are shared together."""
        found: _Factors = []
        for dim in owner.dims:
            match dim:
                case Variadic(name):
                    width = rank - sum(not isinstance(one, Variadic) for one in owner.dims)
                    own = [f"{name}__{place}" for place in range(width)]
                    found += own if name in self.dims else self._apart(width)
                case Fixed(Name(name)) if name in self.dims:
                    found.append(f"{name}__0")
                case _:
                    found += self._apart(1)
        return found if owner.shape is not None else self._apart(rank)

    def _apart(self, count: int) -> _Factors:
        return [f"other__{next(self._others)}" for _ in range(count)]

    def has(self, factor: str) -> bool:
        """Return whether devices may have parts along a factor."""
        return factor.rpartition("__")[0] in self.dims

    def is_summed(self, factor: str) -> bool:
        """Return whether results without a factor are sums over it."""
        return factor.rpartition("__")[0] in self._sums

    def chosen(self, given: Sequence[_Factors], arguments: Sequence[Any]) -> dict[str, Any]:
        """Return the axes of the mesh that each factor is shared among.

        They are those of the first argument that has the factor and is shared along it. A size that
        the devices do not divide is left whole: XLA would fill up the last part.
        """
        found: dict[str, Any] = {}
        used: set[str] = set()
        for own, argument in zip(given, arguments, strict=True):
            sharding = argument.sharding
            if not isinstance(sharding, NamedSharding):
                continue
            for factor, axes, size in zip(own, sharding.spec, argument.shape, strict=False):
                several = axes if isinstance(axes, tuple) else (axes,) if axes else ()
                devices = math.prod(sharding.mesh.shape[axis] for axis in several)
                if (
                    several
                    and self.has(factor)
                    and factor not in found
                    and not used & {*several}
                    and size % devices == 0
                ):
                    found[factor] = several
                    used |= {*several}
        return found

    def missing(self, own: _Factors, chosen: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the axes of the mesh over which a result is to be added up."""
        return tuple(
            axis
            for factor, axes in chosen.items()
            if self.is_summed(factor) and factor not in own
            for axis in axes
        )


def _places(mesh: Any, arrays: Sequence[_Factors], chosen: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(
        NamedSharding(mesh, PartitionSpec(*(chosen.get(factor) for factor in own)))
        for own in arrays
    )


def _text(arrays: Sequence[_Factors]) -> str:
    return ", ".join(" ".join(own) for own in arrays)
