"""Private names of PyTorch's DTensor, since 2.6."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from torch import Tensor

from opsmith.untyped import Untyped, Value

#: The module of DTensor. Public; a text, since nothing here imports it.
DTENSORS = "torch.distributed.tensor"


def has_strategy(overload: object) -> bool:
    """Return whether an operator has a sharding rule by PyTorch's own registration.

    Private:
    ``torch.distributed.tensor.DTensor._op_dispatcher.sharding_propagator.op_strategy_funcs``, since
    2.6. Without it, a rule given to PyTorch's ``register_sharding`` has no effect on an operator of
    opsmith.
    """
    from torch.distributed.tensor import DTensor

    propagator = getattr(getattr(DTensor, "_op_dispatcher", None), "sharding_propagator", None)
    return overload in getattr(propagator, "op_strategy_funcs", ())


def replicates_implicitly() -> bool:
    """Return whether plain tensors beside DTensors count as replicated.

    Private: ``torch.distributed.tensor.DTensor._op_dispatcher._allow_implicit_replication``, which
    the public ``implicit_replication`` sets, since 2.3. Without it, plain tensors are refused.
    """
    from torch.distributed.tensor import DTensor

    dispatcher = getattr(DTensor, "_op_dispatcher", None)
    return bool(getattr(dispatcher, "_allow_implicit_replication", False))


@contextmanager
def group_without_others(count: int, rank: int = 0) -> Iterator[None]:
    """Let this process be a rank of a process group without any other, for a block."""
    import torch.distributed as dist

    dist.init_process_group("fake", rank=rank, world_size=count)
    try:
        yield
    finally:
        dist.destroy_process_group()


def as_every_rank(count: int) -> AbstractContextManager[object]:
    """Run operations in a block for every rank of a group, in this process; nothing is sent.

    Private: ``torch.distributed._local_tensor.LocalTensorMode``, since 2.10. Without it, the row
    ``sharding`` of the checks does not run.
    """
    import torch
    from torch.distributed._local_tensor import LocalTensorMode

    class EveryRank(LocalTensorMode):
        def __torch_dispatch__(
            self, func: object, types: Untyped, args: Value = (), kwargs: Value = None
        ) -> object:
            if func is torch.ops.aten.chunk.default:
                # If parts differ in size, the ranks' lists of chunks differ in length. PyTorch
                # fills up a split's lists with empty tensors, so replace the chunk by its split.
                return func.decompose(*args, **(kwargs or {}))
            return super().__torch_dispatch__(func, types, args, kwargs)

    return EveryRank(count)


def one_per_rank(tensors: Sequence[Tensor]) -> Tensor:
    """Return a tensor whose value differs between the ranks of `as_every_rank`.

    Private: ``torch.distributed._local_tensor.LocalTensor``, since 2.10.
    """
    from torch.distributed._local_tensor import LocalTensor

    return LocalTensor(dict(enumerate(tensors)))


def of_each_rank(tensor: Tensor) -> list[Tensor]:
    """Return the tensors that the ranks hold; one if all hold the same.

    Private: ``torch.distributed._local_tensor.LocalTensor._local_tensors``, since 2.10.
    """
    from torch.distributed._local_tensor import LocalTensor

    if not isinstance(tensor, LocalTensor):
        return [tensor]
    return [tensor._local_tensors[rank] for rank in sorted(tensor._local_tensors)]


def outside_modes() -> AbstractContextManager[object]:
    """Run operations in a block on plain tensors, without the modes that are active.

    Private: ``torch.utils._python_dispatch._disable_current_modes``, since 2.10.
    """
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()
