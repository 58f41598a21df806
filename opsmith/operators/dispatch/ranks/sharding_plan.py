"""Choose the sharding rules of a call, and say what each rank sends to follow them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opsmith.compat.communication import sent
from opsmith.operators.core.arguments import each_tensor, every_tensor_in
from opsmith.operators.dispatch.ranks.sharding_rules import ConcreteRule, concrete_rules
from opsmith.untyped import Arguments, Untyped

if TYPE_CHECKING:
    from torch.distributed.tensor import DeviceMesh, DTensor, Placement

    from opsmith.operators.core.operator import Operator


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


def chosen_rules(operator: Operator, arguments: Arguments, mesh: DeviceMesh) -> list[ConcreteRule]:
    """Return the rule that a call with DTensors follows on each dimension of a mesh.

    The chosen rule moves the fewest bytes; among rules that move equally many, it changes the
    placements of the fewest tensors.
    """
    rules = concrete_rules(operator, arguments)

    def cheapest(place: int) -> ConcreteRule:
        def cost(rule: ConcreteRule) -> tuple[float, int]:
            moved, changed = 0.0, 0
            for name, wanted in rule.arguments.items():
                tensors: list[Untyped] = each_tensor(arguments[name])
                for tensor in tensors:
                    now = tensor.placements[place]
                    if now != wanted:
                        changed += 1
                        size = tensor.numel() * tensor.element_size()
                        moved += _share(now, wanted, mesh.size(place)) * size
            return moved, changed

        return min(rules, key=cost)

    return [cheapest(place) for place in range(mesh.ndim)]


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


def _share(now: Placement, wanted: Placement, size: int) -> float:
    """Return the part of a tensor's bytes that each rank sends to change a placement."""
    share = (size - 1) / size
    if wanted.is_partial():
        return float("inf")  # DTensor makes no summands of a value
    if now.is_replicate():
        return 0.0
    if now.is_partial():
        return 2 * share if wanted.is_replicate() else share
    return share if wanted.is_replicate() else share / size


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
