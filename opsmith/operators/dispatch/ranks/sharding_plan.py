"""Choose the sharding rules of a call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opsmith.operators.core.arguments import each_tensor
from opsmith.operators.dispatch.ranks.sharding_rules import ConcreteRule, concrete_rules
from opsmith.untyped import Arguments, Untyped

if TYPE_CHECKING:
    from torch.distributed.tensor import DeviceMesh, Placement

    from opsmith.operators.core.operator import Operator


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
