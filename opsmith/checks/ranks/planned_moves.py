"""Say what each rank sends to follow the sharding rules of a call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opsmith.compat.communication import sent
from opsmith.operators.core.arguments import every_tensor_in
from opsmith.operators.dispatch.ranks.sharding_rules import ConcreteRule
from opsmith.untyped import Arguments, Untyped

if TYPE_CHECKING:
    from torch.distributed.tensor import DeviceMesh, DTensor, Placement


@dataclass(frozen=True)
class Move:
    """A tensor that is redistributed before a call, along one dimension of a mesh.

    Attributes:
        argument: the name of the tensor.
        now: its placement.
        wanted: its placement for the call.
        sent: the bytes that each rank sends; 0 if every rank cuts its part out of the whole.
    """

    argument: str
    now: Placement
    wanted: Placement
    sent: int


def planned_moves(
    rules: Sequence[ConcreteRule], arguments: Arguments, mesh: DeviceMesh
) -> list[Move]:
    """Return what is redistributed before a call that follows the rules of `chosen_rules`.

    The bytes are those of a mesh of one dimension. DTensor sends parts of one size, and fills up
    those of ranks that have fewer elements.
    """
    found = []
    for name, given in every_tensor_in(arguments):
        tensor: Untyped = given
        for place, rule in enumerate(rules):
            now, wanted = tensor.placements[place], rule.arguments[name.partition("[")[0]]
            if now != wanted:
                found.append(Move(name, now, wanted, _sent(tensor, now, wanted, mesh.size(place))))
    return found


def _sent(tensor: DTensor, now: Untyped, wanted: Untyped, size: int) -> int:
    """Return the bytes that each rank sends to change a placement, padding included."""
    if now.is_replicate():
        return 0
    shape = list(tensor.shape)
    for placement in (now, wanted):
        if placement.is_shard():
            shape[placement.dim] = -(-shape[placement.dim] // size) * size
    whole = tensor.element_size()
    for one in shape:
        whole *= one
    if now.is_partial():
        return sent("all_reduce" if wanted.is_replicate() else "reduce_scatter", size, whole)
    return sent("all_gather" if wanted.is_replicate() else "all_to_all", size, whole // size)
