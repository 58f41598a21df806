"""The classes of PyTorch's operators, as they occur in graphs.

They exist in each release from 2.10 on, in ``torch._ops`` only.
"""

from __future__ import annotations

import torch

from opsmith.untyped import Untyped

#: Private: ``torch._ops.OpOverload``, the class of ``torch.ops.namespace.name.default``. Without
#: it, opsmith cannot recognize an operator in a graph.
OpOverload = torch._ops.OpOverload

#: Private: ``torch._ops.OpOverloadPacket``, the class of ``torch.ops.namespace.name``. Without it,
#: calls of operators that write into arguments are not exported.
OpOverloadPacket = torch._ops.OpOverloadPacket

#: Private: ``torch._ops.HigherOrderOperator``, the class of ``torch.cond``. Without it, such steps
#: of a model are not refused by name.
HigherOrderOperator = torch._ops.HigherOrderOperator


def entry_of(overload: OpOverload) -> Untyped:
    """Return the function in C++ that a call of an operator reaches.

    Private: ``torch.ops.aten.add.Tensor._op``, as of each overload. Without it, each call enters
    one more function of Python's.
    """
    return overload._op


def is_written(argument: Untyped) -> bool:
    """Return whether an operator writes into an argument of its schema."""
    return argument.alias_info is not None and argument.alias_info.is_write


def overload_schema(overload: OpOverload) -> Untyped:
    """Return the schema of an overload: its name, arguments and results, and what it writes.

    Private: ``torch.ops.aten.add.Tensor._schema``, as of each overload. Without it, opsmith cannot
    tell what an operator of a graph takes, returns and writes.
    """
    return overload._schema


def is_builtin(overload: OpOverload) -> bool:
    """Return whether an operator is PyTorch's own.

    Private: ``torch._library.utils.is_builtin``. Without it, adopting an operator of another
    library does not give it a fake kernel, and models that call one are not refused by name.
    """
    from torch._library import utils

    return utils.is_builtin(overload)


def out_of(overload: OpOverload) -> OpOverload | None:
    """Return the overload ``out`` of the same operator, if there is one.

    Private: ``torch.ops.aten.add.Tensor._overloadpacket``, as of each overload. Without it, neither
    callers nor Inductor find out variants.
    """
    return getattr(overload._overloadpacket, "out", None)
