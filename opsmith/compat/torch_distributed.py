"""Private names of PyTorch's DTensor, since 2.6."""

from __future__ import annotations

from typing import Any

#: The module of DTensor. Public; a text, since nothing here imports it.
DTENSORS = "torch.distributed.tensor"


def has_strategy(overload: Any) -> bool:
    """Return whether an operator has a sharding rule by PyTorch's own registration.

    Private: ``DTensor._op_dispatcher.sharding_propagator.op_strategy_funcs``, since 2.6. Without
    it, a rule given to PyTorch's ``register_sharding`` has no effect on an operator of opsmith.
    """
    from torch.distributed.tensor import DTensor

    propagator = getattr(getattr(DTensor, "_op_dispatcher", None), "sharding_propagator", None)
    return overload in getattr(propagator, "op_strategy_funcs", ())


def replicates_implicitly() -> bool:
    """Return whether plain tensors beside DTensors count as replicated.

    Private: ``DTensor._op_dispatcher._allow_implicit_replication``, which the public
    ``implicit_replication`` sets, since 2.3. Without it, plain tensors are refused.
    """
    from torch.distributed.tensor import DTensor

    dispatcher = getattr(DTensor, "_op_dispatcher", None)
    return bool(getattr(dispatcher, "_allow_implicit_replication", False))
