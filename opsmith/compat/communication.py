"""Count what ranks send: every collective of PyTorch's in a block, with its bytes, since 2.6."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from opsmith.compat.torch_distributed import of_each_rank
from opsmith.compat.torch_ops import overload_schema
from opsmith.compat.torch_pytree import tree_leaves
from opsmith.untyped import Args, Untyped, Value


@dataclass(frozen=True)
class Collective:
    """A collective operation among ranks.

    Attributes:
        kind: the operation, as ``"all_gather"``.
        ranks: the number of ranks that take part.
        sent: the bytes that each rank sends, by the algorithm that sends the fewest.
    """

    kind: str
    ranks: int
    sent: int


def sent(kind: str, ranks: int, given: int) -> int:
    """Return the bytes that each rank sends in a collective, if all send as few as they can.

    Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication: theory, practice, and
    experience" (2007) have the bounds, which rings reach.

    Args:
        kind: the operation: a value of `_KINDS`.
        given: the bytes that a rank brings.
    """
    if kind == "all_gather":
        return (ranks - 1) * given
    times = 2 if kind == "all_reduce" else 1
    return times * (ranks - 1) * given // ranks


#: The kinds of collectives by the names that PyTorch's operators begin with, or have.
#: Private: the namespaces ``_c10d_functional`` (DTensor), ``c10d`` (``torch.distributed`` itself
#: and FSDP) and ``_dtensor``, since 2.6. Without them, nothing is counted.
_KINDS = {
    "_c10d_functional": {
        "all_gather_into_tensor": "all_gather",
        "reduce_scatter_tensor": "reduce_scatter",
        "all_reduce": "all_reduce",
        "all_to_all_single": "all_to_all",
        "broadcast": "broadcast",
    },
    "_dtensor": {"shard_dim_alltoall": "all_to_all"},
    "c10d": {
        "_allgather_base": "all_gather",
        "allgather": "all_gather",
        "_reduce_scatter_base": "reduce_scatter",
        "reduce_scatter": "reduce_scatter",
        "allreduce": "all_reduce",
        "alltoall": "all_to_all",
        "broadcast": "broadcast",
    },
}


class Communication(TorchDispatchMode):
    """Note the collectives in a block.

    Private: ``torch.utils._python_dispatch.TorchDispatchMode``, since 1.13. Without it, nothing
    that ranks send is counted.

    The block notes every collective that starts in Python: by DTensor, by FSDP2 or by
    ``torch.distributed``. It misses those of ``DistributedDataParallel``, whose reducer is C++.

    Attributes:
        collectives: the noted collectives, in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.collectives: list[Collective] = []

    @property
    def sent(self) -> int:
        """Return the bytes that each rank sent."""
        return sum(one.sent for one in self.collectives)

    def counts(self) -> dict[str, int]:
        """Return how many collectives there were of each kind."""
        found: dict[str, int] = {}
        for one in self.collectives:
            found[one.kind] = found.get(one.kind, 0) + 1
        return found

    def __torch_dispatch__(
        self, func: Untyped, types: Untyped, args: Value = (), kwargs: Value = None
    ) -> object:
        # DTensor has its turn first, and calls the collectives with tensors of the rank.
        if any(kind.__name__ == "DTensor" for kind in types):
            return NotImplemented
        kind = kind_of(func)
        if kind:
            self._note(kind, func, args)
        return func(*args, **(kwargs or {}))

    def _note(self, kind: str, func: Untyped, args: Args) -> None:
        ranks = next(filter(None, map(_group_size, reversed(args))), 1)
        # In c10d, the first argument of a gather or scatter is the list of results.
        place = 1 if func.namespace == "c10d" and kind in ("all_gather", "reduce_scatter") else 0
        given = sum(_bytes(tensor) for tensor in tree_leaves(args[place]))
        self.collectives.append(Collective(kind, ranks, sent(kind, ranks, given)))


def kind_of(target: object) -> str:
    """Return the kind of collective that an operator is; empty if it is none.

    Private: ``torch._ops.OpOverload``, since 1.11. Without it, no collective is recognised.
    """
    if not isinstance(target, torch._ops.OpOverload):
        return ""
    names = _KINDS.get(target.namespace, {})
    name = overload_schema(target).name.partition("::")[2].removesuffix("_out").rstrip("_")
    return names.get(name.removesuffix("_coalesced"), "")


def _bytes(tensor: Tensor) -> int:
    own = of_each_rank(tensor)[0]
    return int(own.numel()) * own.element_size()


def _group_size(value: object) -> int | None:
    """Return the number of ranks of a process group, by its name or itself.

    Private: ``torch._C._distributed_c10d._resolve_process_group``, since 2.2. Without it, bytes are
    not known of collectives that name their group.
    """
    import torch.distributed as dist
    from torch._C._distributed_c10d import _resolve_process_group

    if isinstance(value, dist.ProcessGroup):
        return value.size()
    if isinstance(value, torch.ScriptObject):
        try:
            return dist.ProcessGroup.unbox(value).size()
        except RuntimeError:  # another object of PyTorch's, such as the kind of reduction
            return None
    if isinstance(value, str):
        try:
            return int(_resolve_process_group(cast(Untyped, value)).size())
        except RuntimeError:  # a text that names no group, such as the kind of reduction
            return None
    return None
